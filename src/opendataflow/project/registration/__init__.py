"""From a checked project.yml to what a store registers."""

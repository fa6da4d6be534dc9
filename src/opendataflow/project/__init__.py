"""project.yml: finding it, reading it, and what it declares."""

PROJECT_FILE = "project.yml"

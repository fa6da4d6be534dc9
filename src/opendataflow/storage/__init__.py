"""Where data lies: local files and folders, object stores, and whether they are still the same."""

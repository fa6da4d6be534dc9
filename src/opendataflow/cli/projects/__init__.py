"""Projects on disk, from git, and from the original."""

"""Projects, those from git too."""

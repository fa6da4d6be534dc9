"""What tests and benches share: a real PostgreSQL, projects in temporary folders, the installed commands."""

"""Commands that run jobs, and that look at runs."""

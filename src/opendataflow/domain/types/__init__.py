"""Types of columns: one value for all systems, what each system calls them, and how texts write their values."""

"""Which chunks a dataset has: schemes, maps from one to another, clocks, and where chunks lie."""

"""Who reads what: the graph of datasets and jobs, and its drawing."""

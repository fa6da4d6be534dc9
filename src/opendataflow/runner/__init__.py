"""Running jobs: prepare, supervise, publish, recover."""

"""OpenDataFlow: state-driven orchestration of batch jobs over partitioned data."""

__version__ = "0.1.0"

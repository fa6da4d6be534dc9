"""`python -m opendataflow` is `dataflow`."""

from opendataflow.cli.main import end

if __name__ == "__main__":
    end()

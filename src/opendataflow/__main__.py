"""`python -m opendataflow` is `dataflow`."""

import sys

from opendataflow.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

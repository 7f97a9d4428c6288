"""Runs the command line as ``python -m parcost``."""

import sys

from parcost.cli import main

if __name__ == "__main__":
    sys.exit(main())

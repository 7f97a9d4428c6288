"""Runs the installed program ``parcost`` as ``python -m parcost``."""

import sys
from importlib.metadata import distribution

if __name__ == "__main__":
    (program,) = distribution("parcost").entry_points.select(
        group="console_scripts", name="parcost"
    )
    sys.exit(program.load()())

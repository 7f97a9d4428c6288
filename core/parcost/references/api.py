"""Runs what makes docs/api.md, for scripts with its former name: the documentation has it."""

import sys
from importlib.metadata import entry_points

if __name__ == "__main__":
    (program,) = entry_points(group="parcost.references", name="api")
    program.load()(sys.argv[1:])

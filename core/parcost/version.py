"""The version of parcost."""

__version__ = "0.2.0.dev0"

"""Executors that distribute a batch or a search: entry points of ``parcost.executors``."""

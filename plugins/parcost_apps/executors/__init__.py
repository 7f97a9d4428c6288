"""Engines that a batch or a search can be spread over: entry points of ``parcost.executors``."""

"""Input and output: files of other tools, formats of reports, pictures, traces.

A module imports ``parcost`` and the vocabulary of ``parcost_plugins``, and no plugin that
estimates costs.
"""

"""Reports and diagnostics as pages, text, Markdown and plain data.

Commands and the exporters of :mod:`parcost_formats.reports` print them.
"""

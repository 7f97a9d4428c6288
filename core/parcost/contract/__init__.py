"""The interface between plugins and the core: hooks, blocks, terms, formulas, checks, entries."""

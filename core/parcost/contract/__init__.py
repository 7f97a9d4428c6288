"""What a plugin and the core agree on: hooks, blocks, terms, formulas, checks, entries."""

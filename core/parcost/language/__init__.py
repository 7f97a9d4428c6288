"""The language: text to syntax tree and back, and units; independent of blocks and plugins."""

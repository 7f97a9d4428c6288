"""The language: text to syntax tree and back, and units. Knows no block and no plugin."""

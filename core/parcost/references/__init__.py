"""The pages that are generated: the Python interface and the language."""

"""Generated documentation: the Python interface, the language and the rules."""

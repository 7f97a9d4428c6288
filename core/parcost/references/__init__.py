"""The former place of generated documentation."""

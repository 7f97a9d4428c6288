"""The plugins of a run, and guarded calls of their hooks."""

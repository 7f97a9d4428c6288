"""Which plugins a run has, and guarded calls of their hooks."""

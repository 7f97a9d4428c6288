"""Files, temporary folders and garbage collection of the process."""

"""Files, temporary folders, threads and garbage collection of the process."""

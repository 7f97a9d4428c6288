"""Reports and diagnostics, drawn for people and spelled out for programs."""

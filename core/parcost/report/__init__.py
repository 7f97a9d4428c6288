"""The results of an evaluated scenario, as records."""

"""``parcost explain``: one number of a report, down to its inputs."""

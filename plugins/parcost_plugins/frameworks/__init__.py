"""What a framework costs on the host, and which features it has."""

PARTS = ("features", "host")

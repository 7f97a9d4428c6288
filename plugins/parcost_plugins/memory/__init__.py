"""What a device holds, and whether it can."""

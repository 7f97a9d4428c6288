"""What was measured: predictions against runs, and constants fitted to them."""

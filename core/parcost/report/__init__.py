"""What is known of a scenario once it is evaluated: records only."""

"""From measured timings to a fabric: logs are read, a link is fitted, a block is written."""

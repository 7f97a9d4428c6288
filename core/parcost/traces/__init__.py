"""Where every term of a step stands in time, for pictures and for viewers of traces."""

"""What a report says of a step: figures, advice, strategies, and how far numbers may be off."""

PARTS = ("advice", "figures", "strategy", "uncertainty")

"""``parcost docs``: the pages of the documentation, without a network."""

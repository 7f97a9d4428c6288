"""``parcost timeline``: start and end of every term of a step, for pictures and trace viewers."""

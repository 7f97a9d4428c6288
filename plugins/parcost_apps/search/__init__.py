"""``parcost search``: the best layouts, why others are slower, and the front."""

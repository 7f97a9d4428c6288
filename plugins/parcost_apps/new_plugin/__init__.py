"""``parcost new-plugin``: a distribution to start a plugin from, with its tests."""

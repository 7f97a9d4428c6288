"""``parcost export``: studies as the settings of the tool that runs them."""

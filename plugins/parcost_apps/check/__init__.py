"""``parcost check``: every problem of a spec, without evaluating it."""

"""From syntax to studies: files and imports, names, expressions, units, sweeps."""

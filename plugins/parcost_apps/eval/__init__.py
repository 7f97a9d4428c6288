"""``parcost eval``: step reports of one spec or thousands, or a shard of them."""

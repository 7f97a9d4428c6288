"""``parcost merge``: the results of shards, joined as if from one run."""

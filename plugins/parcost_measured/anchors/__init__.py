"""Measured runs as anchors of predictions: training logs, rows of RUNS.jsonl, specs."""

PARTS = ("measured_runs",)
OFFERS = ("importers",)

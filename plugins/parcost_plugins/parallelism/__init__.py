"""Parallelism: tensor, context, pipeline, expert and data."""

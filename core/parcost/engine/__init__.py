"""Evaluates a study: op orders are replayed, terms added up, rules and claims checked."""

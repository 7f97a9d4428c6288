"""From a study to its outcome: op orders replayed, terms added up, rules and claims judged."""

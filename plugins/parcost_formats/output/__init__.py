"""Output of reports and diagnostics: for people, and as data for programs."""

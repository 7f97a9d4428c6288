"""Differences between two versions of studies, and their effect on time and memory.

The modules:

    revisions     files of git revisions
    studies       pairs of studies
    changes       attributes, figures, terms
    thresholds    limits of changes
    page          text, Markdown, JSON
"""

"""What differs between two versions of studies, and what that does to time and memory.

revisions     files of git revisions

studies       pairs of studies

changes       attributes, figures, terms

thresholds    limits of changes

page          text, Markdown, JSON
"""

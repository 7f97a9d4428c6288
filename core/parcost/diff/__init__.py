"""What differs between two versions of studies, and what that does to time and memory.

revisions     the files of a git revision
studies       which studies of the two sides belong together
changes       attributes, figures and terms that differ
thresholds    changes that are too large
"""

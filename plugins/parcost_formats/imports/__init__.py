"""Files of other tools as specs, read by the importers of plugins.

A file is translated, and the translation is written as a spec. Each subject that affects cost is
read from the file, assumed by a documented default, or asked for:

    spec_text    the spec of a translation, and its syntax tree with places in the file
    translation  the importer of a file, and its translation
    subjects     settings that decide the cost; misspelled: keys that resemble one of the tool
    joint_job    several files of one job, joined
    questions    settings that a file leaves open, and options that answer
    reader       all of these, as the reader of the core
"""

PARTS = ("reader",)
#: A job in a spec is evaluated without importing these modules.
OFFERS = ("file_readers",)

"""The view of a report: the kind of page, and the content that the user chose."""

from __future__ import annotations

from typing import Literal, get_args

from parcost.records import frozen

Kind = Literal["screen", "full", "section", "line", "compare"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Order = Literal["execution", "size"]

SIDE_BY_SIDE = 3  # studies of one file that stand beside each other; more are a line each


@frozen(kw_only=True)
class View:
    """The options of the command line for the page of a report.

    *kind* is ``screen`` for the short page, ``full`` for everything, or ``section`` for one part.
    It is ``line`` for a row of a table of studies, ``compare`` for a column of one. *section* is a
    part of the title. *order* is the order of the ledger. *figures* are the columns or rows that
    the user chose. If it is empty, the columns are those that plugins mark. *picture* is the name
    of the only picture to draw. *warnings* prints all of them on the short page. Without *hints*,
    the page names no options for further output, but prints that output in full.
    """

    kind: Kind = "full"
    section: str = ""
    order: Order = "execution"
    figures: tuple[str, ...] = ()
    picture: str = ""
    warnings: bool = False
    hints: bool = True

    def kind_among(self, studies: int) -> Kind:
        """Return the kind for each of a number of *studies* of a file.

        >>> View(kind="screen").kind_among(1), View(kind="screen").kind_among(9)
        ('screen', 'line')
        """
        if self.kind != "screen" or studies == 1:
            return self.kind
        return "compare" if studies <= SIDE_BY_SIDE else "line"

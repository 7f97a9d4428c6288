"""Rejections: files, or studies of files, without a report."""

from __future__ import annotations

from collections.abc import Sequence

from parcost.language.diagnostics import Diagnostic
from parcost.records import frozen

BAD_INPUT = 2
FAULT = 3


@frozen(kw_only=True)
class Rejection:
    """A file, or a study in it, without a report; *diagnostics* are the reasons."""

    path: str
    diagnostics: Sequence[Diagnostic]
    exit_code: int = BAD_INPUT

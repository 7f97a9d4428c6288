"""What limits the step, and what the answer rests on.

Both are found by evaluating the study again with one value changed. That is slow next
to the evaluation itself, and only done when somebody reads the sections.
"""

from __future__ import annotations

from parcost import Outcome, Section, Study, hookimpl
from parcost_plugins.advice import evidence, sensitivity


@hookimpl
def sections(study: Study, outcome: Outcome) -> list[Section]:
    """Return what would help most, and the weakest values that matter."""
    return [sensitivity.section(study, outcome), evidence.section(study, outcome)]

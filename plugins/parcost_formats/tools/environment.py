"""Variables of the environment in values of OmegaConf: ``${oc.env:MBS}``, ``${oc.env:MBS,2}``.

The user gives their values, as those of a shell script. A default of the file is an assumption.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

from attrs import evolve

from parcost import ImportedBlock, ImportFile, Translation

_ENDINGS = (".yaml", ".yml")
_VARIABLE = re.compile(
    r"""(["']?)(\$\{oc\.decode:[ ]*)?\$\{oc\.env:[ ]*([A-Za-z_]\w*)[ ]*(?:,([^${}\n]*))?"""
    r"""\}(?(2)\})\1"""
)


class _Reference(NamedTuple):
    """A reference to the variable *name*, at characters *start* to *end*, and its text.

    The text is None for a variable without a value.
    """

    start: int
    end: int
    name: str
    text: str | None
    is_default: bool


class FilledFile:
    """A *file* whose references to the environment are replaced by the values of the variables."""

    def __init__(self, file: ImportFile) -> None:
        given = dict(file.options.environment)
        is_plain = not file.name.endswith(_ENDINGS) or "${oc.env:" not in file.text
        found = () if is_plain else _VARIABLE.finditer(file.text)
        self._references = [
            _Reference(*one.span(), one[3], given.get(one[3], one[4]), one[3] not in given)
            for one in found
        ]
        self._filled = [one for one in self._references if one.text is not None]
        cuts = chain([0], *((one.start, one.end) for one in self._filled), [len(file.text)])
        edges = iter(cuts)
        parts = [file.text[start:end] for start, end in zip(edges, edges, strict=True)]
        texts = [(one.text or "").strip() for one in self._filled]
        both = [*chain.from_iterable(zip(parts, texts, strict=False)), parts[-1]]
        self._ends = [*accumulate(map(len, both))]  # of the parts, in the new text
        self.file = evolve(file, text="".join(both)) if self._filled else file

    def with_places(self, translation: Translation) -> Translation:
        """Return a translation of the new text with places in the original one.

        Values from a default are assumed. Errors and questions about a variable without a value
        name the option for it.
        """
        if not self._references:
            return translation
        return evolve(
            translation,
            blocks=[self._block(one) for one in translation.blocks],
            uses=self._values(translation.uses),
            facts=self._values(translation.facts),
            ignored=[self._place(one) for one in translation.ignored],
            unknown=[self._place(one) for one in translation.unknown],
            missing=[self._place(one) for one in translation.missing],
            questions=[self._question(self._place(one)) for one in translation.questions],
            problems=[self._problem(self._place(one)) for one in translation.problems],
        )

    def _block(self, block: ImportedBlock) -> ImportedBlock:
        inner = [self._block(one) for one in block.blocks]
        return evolve(block, settings=self._values(block.settings), blocks=inner)

    def _values(self, values: Sequence[Any]) -> list[Any]:
        found = []
        for value in map(self._place, values):
            here = [one for one in self._inside(value) if one.text is not None and one.is_default]
            why = f"`{here[0].name}` is not set in the file: its default there" if here else ""
            found.append(evolve(value, assumption=value.assumption or why))
        return found

    def _question(self, question: Any) -> Any:
        ways = self._options(question)
        return evolve(question, answers=(*ways, *question.answers)) if ways else question

    def _problem(self, problem: Any) -> Any:
        here = [one for one in self._inside(problem) if one.text is None]
        if not here:
            return problem
        what = problem.message.partition(":")[0]
        message = f"{what}: `{here[0].name}` of the environment is not known"
        return evolve(problem, message=message, help=" ".join(["add", *self._options(problem)]))

    def _options(self, one: Any) -> Sequence[str]:
        names = dict.fromkeys(it.name for it in self._inside(one) if it.text is None)
        return [f"--set-env {name}=VALUE" for name in names]

    def _inside(self, one: Any) -> Sequence[_Reference]:
        return [it for it in self._references if one.start <= it.start < one.end]

    def _place(self, one: Any) -> Any:
        """Return an entry of a translation with its place in the original text."""
        if not one.end or not self._filled:
            return one
        return evolve(one, start=self._original(one.start), end=self._original(one.end))

    def _original(self, offset: int) -> int:
        """Return an offset of the new text in the original one; within a value it is its end."""
        shift = 0
        for at, one in enumerate(self._filled):
            start, end = self._ends[2 * at], self._ends[2 * at + 1]
            if offset <= start:
                break
            if offset <= end:
                return one.end
            shift = one.end - end
        return offset + shift

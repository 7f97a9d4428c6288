"""Keys of YAML and JSON with null, for which the tool expects a number that affects cost.

    parallelism: {tp: ~, pp: 2}

Most tools stop at a null instead of using a default. The file is read again with a number instead
of null. If this sets a parallel degree, a batch or a model size, the import asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from attrs import evolve

from parcost import ImportedValue, ImportFile, ImportProblem, ImportQuestion, Translation
from parcost_formats.tools.tables import is_listed, value_of_pattern

_ENDINGS = (".yaml", ".yml", ".json")
_NULL = re.compile(
    r"\b([A-Za-z_][\w.-]*)[\"']?[ \t]*:[ \t]+(null|Null|NULL|~)(?=[ \t]*(?:[,}\n#]|$))"
)
_MOST_READS, _MOST_CHARACTERS = 40, 1_000_000  # of a file that is read again
#: A usual value of each attribute that no null may decide.
_DECIDING = {
    **dict.fromkeys((f"layout.{one}" for one in ("tp", "pp", "cp", "ep", "zero")), "1"),
    "layout.dp": "8",
    "model.layers": "32",
    "model.hidden": "4096",
    "model.heads": "32",
    "model.ffn": "14336",
    "model.vocabulary": "128256",
    "training.micro_batch": "1",
    "training.micro_batches": "1",
    "training.sequence": "8192",
    "training.global_batch": "256 sequences",
    "cluster.devices": "64",
}
_SMALL = r"(?:^|_)(?:tp|pp|cp|ep|dp)(?:_|$)|paral|degree|axis|nodes|devices|processes|micro|mbs"
_SMALL += r"|layers?$|heads?$|zero|stage$|accum|grad_acc"
_LARGE = r"batch|seq|len|size|gbs|hidden|dim|ffn|embd|d_model|vocab"
_WORDS = re.compile(f"({_SMALL})|{_LARGE}", re.IGNORECASE)


class _Null(NamedTuple):
    """A null at characters *start* to *end*, its key at *key*, and a typical *number* for the
    key.
    """

    key: int
    start: int
    end: int
    number: str


def ask_for_nulls(
    file: ImportFile,
    found: Translation,
    read: Callable[[ImportFile], Translation],
    nullable: Collection[str],
    factors: Mapping[str, str],
) -> Translation:
    """Return a translation with a question for each null where a number decides an attribute.

    *read* returns the translation of another text. *nullable* are keys that may be null in the
    tool. *factors* has the attribute for each key that is one of several factors of an attribute.
    """
    if not file.name.endswith(_ENDINGS) or found.problems:
        return found
    matches = ((one, _WORDS.search(one[1])) for one in _NULL.finditer(file.text))
    nulls = [  # a batch of one may not divide
        _Null(one.start(1), *one.span(2), "1" if word[1] else "4096")
        for one, word in matches
        if word
    ]
    stated = {path for path, _, assumed in _settings(found) if not assumed}
    asked = {one.attribute for one in found.questions}
    questions = list(found.questions)
    search = _NullSearch(file, read)
    decided = [
        (null, path, one.key)
        for null, path, one in search.decisions(nulls)
        if path in _DECIDING and path not in stated
    ]
    named = ((null, file.text[null.key : null.end].split(":")[0].strip(" '\"")) for null in nulls)
    decided += [(null, str(value_of_pattern(key, factors)), key) for null, key in named]
    for null, path, key in decided:
        if not path or path in asked:
            continue
        asked.add(path)
        if not is_listed(key, nullable):
            answer = f"{path}={_DECIDING[path]}"
            question = ImportQuestion(
                attribute=path,
                reason=f"`{key}` is null, but a number is expected",
                answers=(f"--set '{answer}'" if " " in answer else f"--set {answer}",),
                start=null.key,
                end=null.end,
            )
            questions.append(question)
    if search.left:
        null = search.left[0]
        message = f"{len(nulls)} keys are null, but some of them may need a number"
        help = "leave out keys that are null"
        problem = ImportProblem(message=message, start=null.key, end=null.end, help=help)
        return Translation(problems=[problem])
    return evolve(found, questions=questions) if len(questions) > len(found.questions) else found


class _NullSearch:
    """Reads a file again with numbers in place of nulls; *left* are the nulls that were not
    tried.
    """

    def __init__(self, file: ImportFile, read: Callable[[ImportFile], Translation]) -> None:
        self._file, self._read = file, read
        self._reads = min(_MOST_READS, _MOST_CHARACTERS // max(len(file.text), 1))
        self.left: list[_Null] = []

    def decisions(self, nulls: Sequence[_Null]) -> Iterator[tuple[_Null, str, ImportedValue]]:
        """Yield each null that decides an attribute, with its path and value.

        All of them are tried at once. If their numbers contradict each other, each half is tried
        separately.
        """
        if not nulls:
            return
        self._reads -= 1
        if self._reads < 0:
            self.left += nulls
            return
        found = self._read(evolve(self._file, text=self._replace(nulls)))
        if found.problems and len(nulls) > 1:
            half = len(nulls) // 2
            yield from self.decisions(nulls[:half])
            yield from self.decisions(nulls[half:])
            return
        for null, shift in self._places(nulls):
            for path, one, assumed in _settings(found):
                if one.start <= null.start + shift < one.end and not assumed:
                    yield null, path, one

    def _replace(self, nulls: Sequence[_Null]) -> str:
        text, parts, at = self._file.text, [], 0
        for one in nulls:
            parts += [text[at : one.start], one.number]
            at = one.end
        return "".join([*parts, text[at:]])

    def _places(self, nulls: Sequence[_Null]) -> Iterator[tuple[_Null, int]]:
        """Yield each null with the number of characters by which its place has moved."""
        shift = 0
        for one in nulls:
            yield one, shift
            shift += len(one.number) - (one.end - one.start)


def _settings(found: Translation) -> Iterator[tuple[str, ImportedValue, bool]]:
    for block in found.blocks:
        for one in block.settings:
            yield f"{block.kind}.{one.name}", one, bool(one.assumption)

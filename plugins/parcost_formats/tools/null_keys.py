"""Keys of YAML and JSON that are null where the tool expects a number that decides the cost.

    parallelism: {tp: ~, pp: 2}

A null is not the default of a tool: most stop at it. The file is read again with a number in its
place. It is asked for if it is then a degree of parallelism, a batch or a size of the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from attrs import evolve

from parcost import ImportedValue, ImportFile, ImportQuestion, Translation
from parcost_formats.tools.tables import is_listed

_ENDINGS = (".yaml", ".yml", ".json")
_NULL = re.compile(
    r"\b([A-Za-z_][\w.-]*)[\"']?[ \t]*:[ \t]+(null|Null|NULL|~)(?=[ \t]*(?:[,}\n#]|$))"
)
_MOST = 40  # keys of a file, each of which is read once more
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
    "training.sequence": "8192",
    "training.global_batch": "256 sequences",
    "cluster.devices": "64",
}
_SMALL = r"(?:^|_)(?:tp|pp|cp|ep|dp)(?:_|$)|paral|degree|axis|nodes|devices|processes|micro|mbs"
_SMALL += r"|layers?$|heads?$|zero"
_LARGE = r"batch|seq|len|size|gbs|hidden|dim|ffn|embd|d_model|vocab"
_WORDS = re.compile(f"({_SMALL})|{_LARGE}", re.IGNORECASE)


def ask_for_nulls(
    file: ImportFile,
    found: Translation,
    read: Callable[[ImportFile], Translation],
    nullable: Collection[str],
) -> Iterator[ImportQuestion]:
    """Yield a question for each null where a number decides an attribute that is not stated.

    *read* returns the translation of another text. *nullable* are keys that the tool leaves null.
    """
    if not file.name.endswith(_ENDINGS) or found.problems:
        return
    stated = {path for path, _, assumed in _settings(found) if not assumed}
    asked = {one.attribute for one in found.questions}
    nulls = ((one, _WORDS.search(one[1])) for one in _NULL.finditer(file.text))
    for match, word in islice(((one, word) for one, word in nulls if word), _MOST):
        number = 1 if word[1] else 4096  # a batch of one may not divide
        text = f"{file.text[: match.start(2)]}{number}{file.text[match.end(2) :]}"
        for path, one, assumed in _settings(read(evolve(file, text=text))):
            inside = one.start <= match.start(2) < one.end and not assumed
            if not inside or path not in _DECIDING or path in stated or path in asked:
                continue
            if not is_listed(one.key, nullable):
                answer = f"{path}={_DECIDING[path]}"
                yield ImportQuestion(
                    attribute=path,
                    reason=f"`{one.key}` is null, and a number is expected",
                    answers=(f"--set '{answer}'" if " " in answer else f"--set {answer}",),
                    start=match.start(1),
                    end=match.end(2),
                )
            asked.add(path)


def _settings(found: Translation) -> Iterator[tuple[str, ImportedValue, bool]]:
    for block in found.blocks:
        for one in block.settings:
            yield f"{block.kind}.{one.name}", one, bool(one.assumption)

"""The core has no word of a plugin: no block, figure, objective, cause or resource by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ..syntax import parse_file

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "parcost"
#: Calls that give a thing its name, and the argument that has the name if it is not the first.
_MAKERS = {"Figure": "name", "Objective": "name", "Cause": "", "block": ""}
#: Words of plugins that the core has in another sense, or by a name of the contract.
SENSES = {
    "anchor": "the option `anchors` of a file names such blocks",
    "bubble": "a kind of lines of the ledger",
    "collectives": "a hook",
    "host": "a field of Work",
    "memory": "a hook",
    "pipeline": "a field of a study",
    "schedule": "a field of a pipeline",
    "search": "a kind of charts",
    "source": "a field of a value",
}


def plugin_words() -> set[str]:
    """Return the names that plugins give to blocks, figures, objectives, causes and resources."""
    found: set[str] = set()
    for path in (ROOT / "plugins" / "parcost_plugins").rglob("*.py"):
        for node in ast.walk(parse_file(path)):
            if not isinstance(node, ast.Call):
                continue
            given = {one.arg: one.value for one in node.keywords}
            made = _MAKERS.get(getattr(node.func, "id", ""))
            names = [given.get("resource"), given.get(made or "")]
            names += node.args[:1] if made == "" else []
            found.update(_constants(names))
    return found


def _constants(nodes: list[ast.expr | None]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def core_words() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every string of the core, except in the contract."""
    for path in sorted(CORE.rglob("*.py")):
        if path.parent.name != "contract":
            for node in ast.walk(parse_file(path)):
                yield from (
                    (f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text)
                    for text in _constants([node] if isinstance(node, ast.expr) else [])
                )


def test_the_core_has_no_word_of_a_plugin() -> None:
    words = plugin_words()
    assert words >= {"compute", "hbm", "layout", "mfu", "step_time"}
    bad = [f"{place}: {word}" for place, word in core_words() if word in words - SENSES.keys()]
    assert not bad, "\n".join(bad)


def test_every_sense_is_needed() -> None:
    used = {word for _, word in core_words()} & plugin_words()
    assert used >= SENSES.keys(), SENSES.keys() - used

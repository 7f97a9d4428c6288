"""What a file of another tool lacks to be a job, as options that add it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, problem
from parcost.language.errors import SpecError
from parcost.language.text import Span
from parcost.plugins.discovery import Plugins
from parcost.spec.foreign import ForeignSource
from parcost.spec.modules import Module

_LACKING = {"missing-block", "missing-attribute"}


def with_options(
    error: SpecError, module: Module, overrides: Iterable[str], plugins: Plugins
) -> SpecError:
    """Return *error* with one diagnostic of all that the file lacks, in place of one each."""
    source = module.source
    if not isinstance(source, ForeignSource) or not any(
        one.id in _LACKING for one in error.diagnostics
    ):
        return error
    lacking = _lacking(source.needs, module, set(overrides), plugins)
    if not lacking:
        return error
    rest = [one for one in error.diagnostics if one.id not in _LACKING]
    names = ", ".join(f"`{path}`" for path in lacking)
    found = Diagnostic(
        "import-incomplete",
        f"`{source.name}` is no whole job: it lacks {names}",
        place=source.name,
        help="add options such as " + " ".join(dict.fromkeys(lacking.values())),
    )
    return SpecError([*rest, found])


def open_questions(module: Module, overrides: Iterable[str]) -> list[Diagnostic]:
    """Return an error for each question of a file of another tool that no option answers."""
    source = module.source
    if not isinstance(source, ForeignSource):
        return []
    answered = {name for path in overrides for name in (path, path.partition(".")[0])}
    answered |= {block.kind.text for _, block, _ in module.imported_blocks}
    return [
        problem(
            "import-question",
            f"`{one.attribute}` is not known: {one.reason}",
            Span(source, one.start, one.end),
            help="choose one: " + " | ".join(one.answers) if one.answers else None,
        )
        for one in source.questions
        if one.attribute not in answered
    ]


def _lacking(
    needs: Mapping[str, str], module: Module, overrides: set[str], plugins: Plugins
) -> dict[str, str]:
    """Return the options of those attributes that neither the file nor an option gives."""
    blocks = [*module.blocks, *(block for _, block, _ in module.imported_blocks)]
    kinds = {block.kind.text for block in blocks}
    given = overrides | {
        f"{block.kind.text}.{item.name.text}"
        for block in blocks
        for item in block.items
        if isinstance(item, s.Attribute)
    }
    found: dict[str, str] = {}
    for path, option in needs.items():
        kind, _, name = path.partition(".")
        field = plugins.blocks[kind].fields.get(name) if kind in plugins.blocks else None
        if path not in given and field is not None and field.target not in kinds:
            found[path] = option
    return found

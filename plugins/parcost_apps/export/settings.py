"""Export of a study as settings of another tool, and the attributes that are lost.

A writer's text is read back by the importer of its tool. Blocks of the importer replace blocks of
the study; blocks of the machine stay. The result is compared with the original study, attribute by
attribute. For example, `recompute.mlp` differs if the tool has no such switch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isclose
from typing import Any, TypeVar

from attrs import evolve

from parcost.contract.calls import CallError, call
from parcost.contract.importers import ImportedBlock, ImportedValue, Importer, Translation
from parcost.contract.settings import SettingsWriter, ToolSettings
from parcost.contract.study import Study
from parcost.engine.session import Session
from parcost.language.diagnostics import Diagnostic, did_you_mean, problem, type_name
from parcost.language.errors import PluginError, SpecError
from parcost.language.escapes import escape_line
from parcost.language.text import Source
from parcost.records import frozen, record
from parcost.system.files import failure
from parcost.version import __version__
from parcost_apps.cli.messages import write_message
from parcost_apps.cli.output_files import OutputFile
from parcost_formats.imports.reader import importers_of
from parcost_formats.imports.spec_text import spec_lines
from parcost_formats.imports.translation import translate
from parcost_formats.rendering.resolved_spec import (
    AttributeText,
    SpecBlock,
    resolved_attributes,
    spec_blocks,
)

T = TypeVar("T")
_CLOSE = 1e-12
_MOST_VALUES = 6  # of one block, in a remark


@record(kw_only=True, eq=False)
class ExportedSettings:
    """The settings of a study as the text of a file, and remarks for the user."""

    text: str
    remarks: Sequence[str]


@frozen
class LostAttribute:
    """An attribute whose value the settings do not preserve.

    *value* is the value in the study, and *other* the value that a tool with these settings uses.
    """

    path: str
    value: str
    other: str


def writer_of(session: Session, name: str) -> SettingsWriter:
    """Return the settings writer called *name*.

    Raises:
        SpecError: No plugin has it.
    """
    offered: Mapping[str, tuple[Any, SettingsWriter]] = session.plugins.offers("settings_writers")
    if name in offered:
        return offered[name][1]
    tools = "tools: " + ", ".join(sorted(offered))
    if name in importers_of(session):
        message = f"files of `{name}` can be imported, but no plugin writes its settings"
        raise failure("unknown-tool", message, "", tools)
    message = f"no plugin writes settings of `{name}`"
    raise failure("unknown-tool", message, "", did_you_mean(name, offered) or tools)


def export(study: Study, writer: SettingsWriter, session: Session) -> ExportedSettings:
    """Return the settings of *study* for the tool of *writer*.

    Raises:
        SpecError: The tool cannot run the study, or would run another job.
        PluginError: The writer fails, or the importer of the tool cannot read its text.
    """
    if not study.trains:
        message = f"`{study.name}` has no training step: there is no job to start"
        raise failure("export-no-step", message, study.path)
    settings: object = _call(writer, writer.write, study)
    if not isinstance(settings, ToolSettings):
        message = f"`write` returned {type_name(settings)} where ToolSettings is expected"
        raise PluginError(f"settings writer `{writer.name}`: {message}")
    if settings.problems:
        raise SpecError(
            [
                _diagnostic(study, one.attribute, one.message, one.help or None)
                for one in settings.problems
            ]
        )
    other = read_back(study, writer, settings.text, session)
    differing = lost_attributes(study, other, writer, session)
    same = [one for one in differing if _parent(settings.same, one.path)]
    lost = [one for one in differing if one not in same]
    if any(_is_essential(writer, one.path) for one in same):
        here, there = ({x.path: x.other for x in same}, {x.path: x.value for x in same})
        if _has_effect(study, here) or _has_effect(other, there):
            _reject(study, writer, differing)
    _reject(study, writer, lost)
    remarks = list(_remarks(study, writer, settings, lost))
    head = ""
    if writer.comment:
        head = "".join(f"{writer.comment} {escape_line(line)}".rstrip() + "\n" for line in remarks)
    first, newline, rest = settings.text.partition("\n")
    if first.startswith("#!"):  # stays the first line
        return ExportedSettings(text=f"{first}{newline}{head}{rest}", remarks=remarks)
    return ExportedSettings(text=head + settings.text, remarks=remarks)


def read_back(study: Study, writer: SettingsWriter, text: str, session: Session) -> Study:
    """Return *study* with the job that the settings in *text* describe.

    Raises:
        PluginError: No importer reads the text, or it has errors.
    """
    importer: Importer | None = importers_of(session).get(writer.reader)
    if importer is None:
        message = f"there is no importer `{writer.reader}` to check the written settings"
        raise PluginError(f"settings writer `{writer.name}`: {message}")
    try:
        found = translate(importer, Source(f"settings{writer.suffix}", text))
        spec = _spec_text(study, writer, found, _imported_kinds(found, session))
        return session.load_text(spec, study.path or study.name)[0].first
    except SpecError as error:
        first = error.diagnostics[0]
        message = f"the written settings cannot be imported again: {first.message}"
        raise PluginError(f"settings writer `{writer.name}`: {message}") from error


def lost_attributes(
    study: Study, other: Study, writer: SettingsWriter, session: Session
) -> list[LostAttribute]:
    """Return the attributes of *study* whose values differ in *other*."""
    before, after = (resolved_attributes(one, writer.outside) for one in (study, other))
    absent = AttributeText()
    lost = [
        LostAttribute(path, one.text, two.text)
        for path, one in before.items()
        if path not in writer.outside
        and not _equal(one.text, (two := after.get(path, absent)).text)
        and (one.is_given or two.is_given)
    ]
    known = (*writer.outside, *_definitions(session))
    alone = [
        one
        for one in spec_blocks(study)
        if one.label and one.is_given and not one.is_referred and one.kind not in known
    ]
    return [*lost, *(LostAttribute(f"{one.kind}.{one.label}", "in the spec", "") for one in alone)]


def _definitions(session: Session) -> set[str]:
    """Return the kinds of blocks that only have an effect through references to them."""
    types = session.plugins.blocks.values()
    return {field.target for type_ in types for field in type_.fields.values() if field.target}


def _imported_kinds(found: Translation, session: Session) -> dict[str, str]:
    """Return the labels of the blocks that a translation imports, by their kinds."""
    uses = "\n".join(f"use {use.value}" for use in found.uses)
    imported = session.loader.text(uses, "<uses>").imported_blocks
    return {block.kind.text: name for _, block, name in imported}


def _spec_text(
    study: Study, writer: SettingsWriter, found: Translation, imported: Mapping[str, str]
) -> str:
    """Return a spec of the job in *found* on the machine of *study*."""
    texts = spec_blocks(study)
    kinds = {one.kind for one in found.blocks}
    alone = {one.kind for one in found.blocks if not one.label}
    values = resolved_attributes(study, ())
    own = {p: values[p].text for p in writer.outside if p in values and values[p].text}
    written = {one.kind: one.label.partition(" ")[0] for one in found.blocks if one.label}
    stand_in = {**imported, **written}
    blocks = [_complete(one, texts, stand_in, own) for one in found.blocks]
    labels = {(one.kind, one.label.partition(" ")[0]) for one in found.blocks if one.label}
    labels.update(imported.items())
    lines = [line.text for line in spec_lines(evolve(found, blocks=blocks))]
    for one in texts:
        outside = one.kind in writer.outside
        if one.label:
            used = (one.is_referred or outside) and (one.kind, one.label) not in labels
            used = used and one.kind not in alone  # a system's cluster, which the tool's replaces
        else:
            used = outside and one.kind not in kinds
        if used:
            lines += ["", one.text]
    return "\n".join(lines)


def _complete(
    block: ImportedBlock,
    texts: Iterable[SpecBlock],
    stand_in: Mapping[str, str],
    own: Mapping[str, str],
) -> ImportedBlock:
    """Return a block completed with references and attributes for which the tool has no setting."""
    if block.label:
        return block
    found = {
        name: stand_in.get(kind, label)
        for text in texts
        if text.kind == block.kind
        for name, (kind, label) in text.references.items()
    }
    for path, value in own.items():
        kind, _, name = path.partition(".")
        if kind == block.kind:
            found[name] = value
    known = {one.name for one in block.settings}
    more = [ImportedValue(name=n, value=value) for n, value in found.items() if n not in known]
    return evolve(block, settings=(*block.settings, *more))


def _has_effect(study: Study, values: Mapping[str, str]) -> bool:
    """Return whether changed *values* of attributes, by block kind, change step time or memory.

    An attribute without a value stays as it is.
    """
    labels = {one.kind: one.label for one in spec_blocks(study) if one.label and one.is_referred}
    changes: dict[str, str] = {}
    for path, value in values.items():
        kind, _, name = path.partition(".")
        if value:
            changes[f"{labels.get(kind, kind)}.{name}"] = value
    try:
        first, second = study.evaluate(), study.replace(changes).evaluate()
    except SpecError:  # it cannot be set so
        return True
    pairs = (
        (first.step_seconds, second.step_seconds),
        (first.memory_bytes, second.memory_bytes),
    )
    return not all(isclose(float(one), float(two), rel_tol=_CLOSE) for one, two in pairs)


def _is_essential(writer: SettingsWriter, path: str) -> bool:
    return bool(_parent(writer.essential, path))


def _reject(study: Study, writer: SettingsWriter, lost: Iterable[LostAttribute]) -> None:
    """Raise an error that lists the lost attributes that change the job."""
    found = []
    for one in lost:
        if _is_essential(writer, one.path):
            reason = writer.reasons.get(_parent(writer.reasons, one.path), "")
            tool = writer.title
            has = f"{tool} uses {one.other}" if one.other else f"{tool} has no setting for it"
            message = f"`{one.path}` is {one.value}, but {has}"
            found.append(_diagnostic(study, one.path, message, reason or None))
    if found:
        raise SpecError(found)


def _diagnostic(study: Study, path: str, message: str, help: str | None) -> Diagnostic:
    span = study.where(path)
    if span is None:
        return Diagnostic("export", message, place=study.path, help=help)
    return problem("export", message, span, help=help)


def _remarks(
    study: Study, writer: SettingsWriter, settings: ToolSettings, lost: Iterable[LostAttribute]
) -> Iterator[str]:
    """Yield the remarks for the comments of the settings, and for stderr."""
    yield f"`{study.name}` of `{study.path}` for {writer.title}, by parcost {__version__}."
    shown: dict[str, list[str]] = {}
    for one in lost:
        covering = _parent(writer.reasons, one.path) or one.path
        name = one.path.removeprefix(covering).lstrip(".")
        shown.setdefault(covering, []).append(f"{name} = {one.value}" if name else one.value)
        if not writer.reasons.get(covering):
            shown[covering][-1] += f" (there: {one.other or 'none'})"
    if shown:
        yield "No setting in the tool:"
        for path, values in shown.items():
            few = len(values) <= _MOST_VALUES
            text = ", ".join(values) if few else f"{len(values)} attributes"
            equals = " =" if "." in path else ":"
            why = f": {writer.reasons[path]}" if path in writer.reasons else ""
            yield f"  {path}{equals} {text}{why}"
    if settings.needs:
        yield "Add by hand (not in a spec):"
        yield from (f"  {line}" for line in settings.needs)


def _parent(paths: Iterable[str], path: str) -> str:
    """Return the longest of *paths* that is *path* or a parent of it, or "".

    >>> _parent(["schedule", "layout.tp"], "schedule.kind"), _parent(["layout.t"], "layout.tp")
    ('schedule', '')
    """
    found = [one for one in paths if path == one or path.startswith(f"{one}.")]
    return max(found, key=len, default="")


def _equal(one: str, other: str) -> bool:
    """Return whether two values are equal, ignoring rounding of numbers.

    >>> _equal("8 B", "8 B"), _equal("0.1", "0.10000000000000001"), _equal("on", "off")
    (True, True, False)
    """
    if one == other:
        return True
    first, unit, _ = one.partition(" ")
    second, other_unit, _ = other.partition(" ")
    try:
        return unit == other_unit and isclose(float(first), float(second), rel_tol=_CLOSE)
    except ValueError:
        return False


def _call(writer: SettingsWriter, function: Callable[..., T], *arguments: object) -> T:
    """Return the result of a function of a writer.

    Raises:
        PluginError: The function raises.
    """
    try:
        return call(function, *arguments)
    except CallError as error:
        raise PluginError(f"settings writer `{writer.name}` {error}") from error


def write_settings(made: Sequence[ExportedSettings], out: str | None) -> None:
    """Write settings to stdout or into the file *out*, and their remarks to stderr."""
    with OutputFile(out) as target:
        for place, one in enumerate(made):
            target.put("\n" + one.text if place else one.text)
    for one in made:
        write_message("\n".join(one.remarks), remarks=True)

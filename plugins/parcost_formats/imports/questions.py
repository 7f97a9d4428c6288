"""Settings that a file of another tool lacks, and the options that supply them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from attrs import evolve, field

from parcost.binding.modules import Module, label_of
from parcost.contract.importers import (
    ForeignSource,
    ImportedBlock,
    ImportedKey,
    ImportedValue,
    Importer,
    ImportQuestion,
    Translation,
)
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, problem
from parcost.language.errors import SpecError
from parcost.language.text import Source, Span
from parcost.plugins.discovery import Plugins
from parcost.records import frozen
from parcost_formats.imports.subjects import is_answered
from parcost_formats.imports.translation import ImportedFile, list_names

_LACKING = {"missing-block", "missing-attribute"}
_QUESTION = "import-question"
_MOST_NOTES = 3  # about variables of a script


@frozen(slots=False, eq=False)
class ToolSource(ForeignSource):
    """The text of a file of another tool, and the *settings* that were read from it.

    *needs* maps attributes that such files may lack to the importer that has options for them.
    *unknown* are unknown settings that decide the cost. *others* are further files of the job.
    *spec* is the spec that all files of the job are read as. *strange* are keys in no table.
    """

    settings: Sequence[tuple[str, ImportedValue]] = field(default=(), repr=False)
    needs: Mapping[str, Importer] = field(factory=dict, repr=False)
    unknown: Sequence[ImportQuestion] = field(default=(), repr=False)
    others: Sequence[ToolSource] = field(default=(), repr=False)
    spec: str = field(default="", repr=False)
    strange: Sequence[ImportedKey] = field(default=(), repr=False)

    def remark(self, offset: int) -> str:
        """Return a note with the attribute that was read at *offset*, or ""."""
        for block, setting in self.settings:
            if setting.start <= offset < setting.end:
                also = f"; {setting.remark}" if setting.remark else ""
                return f"`{setting.key}` is `{block}.{setting.name}` here{also}"
        return ""

    def questions(self, module: Module, given: Collection[str]) -> Sequence[Diagnostic]:
        """Return one error with all unanswered questions about the files of *module*, or none."""
        answers = {*given, *_stated_names(module)}
        found = [
            (question, source)
            for one in module.closure()
            if isinstance(one.source, ToolSource)
            for source in (one.source, *one.source.others)
            for question in source.unknown
            if not is_answered(_exact(question, source), answers)
        ]
        return _ask_all(found)

    def explain(
        self, error: SpecError, module: Module, given: Collection[str], plugins: Plugins
    ) -> SpecError:
        """Return *error* with one diagnostic for all missing attributes, not one for each.

        It also lists missing attributes without a question, so that the user can supply all values
        at once.
        """
        if not any(one.id in (*_LACKING, _QUESTION) for one in error.diagnostics):
            return error
        if not self.needs:
            return self._explain_part(error)
        lacking = _find_missing_options(self.needs, module, set(given), plugins)
        if any(one.id == _QUESTION for one in error.diagnostics):
            asked = [one for source in (self, *self.others) for one in source.unknown]
            lacking = {
                path: way
                for path, way in lacking.items()
                if not any(is_answered(one, {path, path.partition(".")[2]}) for one in asked)
            }
        if not lacking:
            return error
        # A name of a block that the file lacks is unknown too.
        rest = [
            one
            for one in error.diagnostics
            if one.id not in _LACKING and not (one.id == "unknown-name" and _is_within(one, self))
        ]
        names = ", ".join(f"`{path}`" for path in lacking)
        strange = [one for file in (self, *self.others) for one in file.strange]
        found = Diagnostic(
            "import-incomplete",
            f"`{self.name}` is not a complete job; missing: {names}",
            notes=tuple(_notes_about(strange)),
            place=self.name,
            help="add options such as " + " ".join(dict.fromkeys(lacking.values())),
        )
        return SpecError([*rest, found])

    def _explain_part(self, error: SpecError) -> SpecError:
        """Return *error* with the option that adds this file, which describes no job, to a job."""
        kinds = list(dict.fromkeys(block.partition(" ")[0] for block, _ in self.settings))
        if not kinds or _QUESTION in {one.id for one in error.diagnostics}:
            return error
        listed = " and ".join(f"`{one}`" for one in kinds)
        option = "--anchor" if kinds == ["anchor"] else "--use"
        part = Diagnostic(
            "import-incomplete",
            f"`{self.name}` has only {listed}, which is a part of a job",
            place=self.name,
            help="add the file to the job (a spec or a file of another tool): `parcost eval JOB "
            f"{option} {self.name}`",
        )
        return SpecError([one for one in error.diagnostics if one.id not in _LACKING] + [part])


def _notes_about(keys: Sequence[ImportedKey]) -> Iterator[str]:
    """Yield notes about unknown keys, and about variables of a script that may hold some."""
    words = [one for one in keys if one.name.startswith(("$", "`"))]
    plain = [one.name for one in keys if one not in words]
    if plain:
        yield f"not in parcost's table, so perhaps misspelled: {list_names(plain)}"
    for one in words[:_MOST_NOTES]:
        yield f"`{one.name}` may have arguments: {one.reason}"


def _exact(question: ImportQuestion, source: ToolSource) -> ImportQuestion:
    """Return a question that only an explicit value of the spec answers, if importers need the
    attribute.

    A catalogue entry in the spec does not answer it; an entry on the command line does.
    """
    is_need = question.attribute in source.needs and bool(question.end)
    return evolve(question, partial=question.partial or is_need)


def _is_within(diagnostic: Diagnostic, source: Source) -> bool:
    return all(label.span.source.name == source.name for label in diagnostic.labels)


def spec_of(source: Source) -> str:
    """Return the text of a spec, or the spec as which the files of a foreign job are read."""
    return source.spec if isinstance(source, ToolSource) else source.text


def unset_attributes(module: Module, names: Iterable[str], plugins: Plugins) -> set[str]:
    """Return the attributes of *names* that a file of another tool does not state itself."""
    source = module.source
    if not isinstance(source, ToolSource):
        return set()
    lacking = _find_missing_options(source.needs, module, set(), plugins)
    questions = [one for file in (source, *source.others) for one in file.unknown]
    return {
        name
        for name in names
        if name in lacking or any(is_answered(one, {name}) for one in questions)
    }


def _stated_names(module: Module) -> set[str]:
    """Return the attributes that specs set, and the kinds of the blocks that they import."""
    found: set[str] = set()
    blocks: list[s.Block] = []
    for one in module.scope:
        if isinstance(one.source, ForeignSource):
            continue
        found |= {block.kind.text for _, block, _ in one.imported_blocks}
        blocks += one.blocks
        for study in one.studies:
            blocks += (item for item in study.items if isinstance(item, s.Block))
    for block in blocks:
        found.add(block.kind.text)
        found |= {
            f"{block.kind.text}.{item.name.text}"
            for item in block.items
            if isinstance(item, s.Attribute)
        }
    return found


def questions_of(files: Iterable[ImportedFile]) -> list[Diagnostic]:
    """Return one error with all questions about imported files, or none."""
    return _ask_all(
        [(one, file.source) for file in files for one in file.translation.questions],
    )


def with_values(translation: Translation, values: Mapping[str, str]) -> Translation:
    """Return a translation with attributes set by the command line, such as ``layout.tp``."""
    blocks = list(translation.blocks)
    for path, value in values.items():
        kind, _, name = path.partition(".")
        own = ImportedValue(name=name, value=value, key=f"--set {path}={value}")
        at = next((i for i, block in enumerate(blocks) if block.kind == kind), len(blocks))
        block = blocks[at] if at < len(blocks) else ImportedBlock(kind=kind)
        rest = [one for one in block.settings if one.name != name]
        blocks[at : at + 1] = [evolve(block, settings=[*rest, own])]
    return evolve(translation, blocks=blocks)


def _ask_all(questions: Sequence[tuple[ImportQuestion, Source]]) -> list[Diagnostic]:
    """Return one error with all questions and the options that answer them, or None."""
    questions = _independent(questions)
    if not questions:
        return []
    spans = [Span(source, one.start, one.end) for one, source in questions]
    if len(questions) == 1:
        one, _ = questions[0]
        message = f"`{one.attribute}` is not known: {one.reason}"
        how = "add" if len(one.answers) == 1 else "choose one:"
        ways = f"{how} {' | '.join(one.answers)}" if one.answers else None
        return [problem(_QUESTION, message, spans[0], help=ways)]
    names = list(dict.fromkeys(one.attribute for one, _ in questions))
    first: dict[str, ImportQuestion] = {}
    for one, _ in questions:
        first.setdefault(one.attribute, one)
    groups: dict[str, list[ImportQuestion]] = {}
    for name, one in first.items():  # one note for each variable of a script, and for each reason
        answer = next(iter(one.answers), "")
        same = one.reason if len(one.answers) == 1 else name
        groups.setdefault(answer if answer.startswith("--set-env") else same, []).append(one)
    notes: list[str] = []
    options: list[str] = []
    for group in groups.values():
        one = group[0]
        shared = [way for way in one.answers if all(way in other.answers for other in group)]
        ways = f"; choose one: {' | '.join(shared)}" if len(shared) > 1 else ""
        notes.append(f"{', '.join(f'`{o.attribute}`' for o in group)}: {one.reason}{ways}")
        added = shared[:1] or [way for other in group for way in other.answers[:1]]
        options += [one for way in added for one in re.split(" (?=--)", way)]
    message = f"not known: {', '.join(f'`{name}`' for name in names)}"
    labels = [(span, f"`{one.attribute}`") for span, (one, _) in zip(spans, questions, strict=True)]
    return [
        problem(
            _QUESTION,
            message,
            *labels[0],
            notes=notes,
            also=labels[1:],
            help=f"add options such as {' '.join(dict.fromkeys(options))}" if options else None,
        )
    ]


def _independent(
    questions: Sequence[tuple[ImportQuestion, Source]],
) -> Sequence[tuple[ImportQuestion, Source]]:
    """Return the questions without those that the answer to another question settles."""
    found: list[tuple[ImportQuestion, Source]] = []
    for one, source in questions:
        if any(is_answered(one, {other.attribute}) for other, _ in found):
            continue
        found = [pair for pair in found if not is_answered(pair[0], {one.attribute})]
        found.append((one, source))
    return found


def _find_missing_options(
    needs: Mapping[str, Importer], module: Module, overrides: set[str], plugins: Plugins
) -> dict[str, str]:
    """Return the options for the attributes of *needs* that neither a file nor an option sets."""
    blocks = [
        block
        for one in module.scope
        for block in (*one.blocks, *(inner for _, inner, _ in one.imported_blocks))
    ]
    kinds = {block.kind.text for block in blocks}
    attributes = [
        (block.kind.text, item)
        for block in blocks
        for item in block.items
        if isinstance(item, s.Attribute)
    ]
    given = overrides | {f"{kind}.{item.name.text}" for kind, item in attributes}
    fields = {kind: type_.fields for kind, type_ in plugins.blocks.items()}
    names = {f"{block.kind.text}.{label_of(block)}" for block in blocks} | {
        f"{field.target}.{item.value.parts[-1].text}"
        for kind, item in attributes
        if (field := fields.get(kind, {}).get(item.name.text)) is not None
        and isinstance(item.value, s.Path)
    }
    found: dict[str, str] = {}
    for path, importer in needs.items():
        kind, _, name = path.partition(".")
        field = fields.get(kind, {}).get(name)
        if path not in given and field is not None and field.target not in kinds:
            found[path] = importer.option_for(path, names)
    return found

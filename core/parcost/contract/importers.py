"""Importers: files of other tools, read as specs.

An importer translates a text into blocks of attributes. It executes nothing in the text. Each
attribute keeps the range of characters from which it was read. A diagnostic points at this range in
the user's file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attrs import astuple, evolve, field

from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, Severity
from parcost.language.errors import SpecError
from parcost.language.text import Source
from parcost.records import frozen, record

#: Endings of files that a run prints. They may be longer than the file of a job.
LOG_SUFFIXES = (".log", ".out", ".err", ".stdout", ".stderr")


@record
class ImportOptions:
    """Options for reading files of other tools.

    *tool* is the name of an importer; empty if keys of the file identify it. *uses* are catalogue
    entries to add. *recipe* selects one of several configurations of a file. *environment* has
    values of shell variables. *family* is the model type of a config.json. *text_only* omits the
    vision and audio towers of a model. *files* are other files of the same job. *settings* are
    attributes that the command line sets, with their texts, so that the files need not have them.
    *anchors* are files with measured runs of the job, or attributes of one such as
    ``step_time = 4.1 s``.
    """

    tool: str = ""
    uses: tuple[str, ...] = ()
    recipe: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    family: str = ""
    text_only: bool = False
    files: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    anchors: tuple[str, ...] = ()

    @property
    def set_paths(self) -> frozenset[str]:
        """The attributes that the command line sets, such as ``layout.tp``."""
        return frozenset(path for path, _ in self.settings)

    @property
    def key(self) -> tuple[str, ...]:
        """A hash key of the options, as texts; empty for a plain spec."""
        return () if self == PLAIN else tuple(map(repr, astuple(self)))

    def unused_warnings(
        self, names: Sequence[str], has_effect: Callable[[ImportOptions], bool] = lambda _: False
    ) -> Iterator[Diagnostic]:
        """Yield a warning for each option without effect on the files *names*.

        *has_effect* is called with options without one of them, or with another recipe. It returns
        whether this changes the translation of a file.
        """
        without = [
            (
                f"--set-env {name}",
                evolve(self, environment=tuple(p for p in self.environment if p[0] != name)),
            )
            for name, _ in self.environment
        ]
        if self.recipe:  # of the only recipe of a file, another name is an error
            without.append((f"--recipe {self.recipe}", evolve(self, recipe=f"{self.recipe}?")))
        for name, option in {"family": f"--as {self.family}", "text_only": "--text-only"}.items():
            if getattr(self, name):
                without.append((option, evolve(self, **{name: getattr(PLAIN, name)})))
        for option, other in without:
            if not has_effect(other):
                yield Diagnostic(
                    "import-option",
                    f"`{option}` has no effect on {', '.join(f'`{name}`' for name in names)}",
                    place=names[0],
                    help="leave it out, or check the name and the file",
                    severity=Severity.WARNING,
                )


PLAIN = ImportOptions()  # a spec, or a file of a tool that its content shows


def no_neighbor(path: str) -> str | None:  # noqa: ARG001
    """Return None: no other file is available."""
    return None


@record
class ImportFile:
    """A file to import: its *name*, its *text*, and the *options* of the user.

    *neighbor* returns the text of another file by its path relative to this one, such as
    ``models/llama.sh``. It returns None if the file is missing or must not be read. *others* maps
    the names of the other files of the job on the command line to their texts.
    """

    name: str
    text: str
    options: ImportOptions = PLAIN
    neighbor: Callable[[str], str | None] = no_neighbor
    others: Mapping[str, str] = MappingProxyType({})


@record
class PlaceBeside:
    """Characters *start* to *end* of the file *name* in the folder of the imported file."""

    name: str
    start: int
    end: int


@record(kw_only=True)
class ImportedValue:
    """The setting ``name = value``, read from characters *start* to *end* of the file.

    *value* is an expression of the language, with its unit. *key* is the name of the setting in the
    tool, as its users write it. For a value that the file does not state, *assumption* is the
    reason for the value. *file* is the name of its file if several files are imported together.
    *remark* is added to diagnostics about the value, such as a behaviour of the tool that a spec
    cannot express. *beside* is the place of the key if the key is in a referenced file; *start* and
    *end* are then those of the reference.
    """

    name: str
    value: str
    key: str = ""
    start: int = 0
    end: int = 0
    assumption: str = ""
    file: str = ""
    remark: str = ""
    beside: PlaceBeside | None = None


@record(kw_only=True)
class ImportedBlock:
    """A block of the language, made from a file of another tool."""

    kind: str
    label: str = ""
    settings: Sequence[ImportedValue] = ()
    blocks: Sequence[ImportedBlock] = ()


@record(kw_only=True)
class ImportedKey:
    """A key without effect on the cost, at characters *start* to *end*. *reason* is the reason, if
    known.

    *attribute* is the attribute that it would set, ``model.vocabulary``, or a kind of blocks;
    another file of the job may set it.
    """

    name: str
    start: int = 0
    end: int = 0
    reason: str = ""
    attribute: str = ""


@record(kw_only=True)
class ImportQuestion:
    """An error that asks the user for a setting: it affects the cost, and no file has it.

    *attribute* is the unknown setting: ``layout.zero``, or a kind of blocks such as ``precision``.
    *reason* explains why, with the name of the key. *answers* are options of the command line to
    copy: ``--set layout.zero=1``, ``--use catalog.precisions.bf16``, ``--set-env DTYPE=fp8``. A
    value of the attribute from the command line, or from another file of the job, answers the
    question. A value of an attribute in *also* answers it as well. *partial* is true if the file
    has a part of the value, such as only the number of nodes. Then the value of a catalogue entry
    is not an answer.
    """

    attribute: str
    reason: str
    answers: Sequence[str] = ()
    start: int = 0
    end: int = 0
    also: Sequence[str] = ()
    partial: bool = False


@record(kw_only=True)
class ImportSubject:
    """A subject that affects the cost, such as ZeRO, and its names in files.

    *attributes* set it: attributes such as ``layout.zero``, kinds of blocks, and folders of a
    catalogue such as ``catalog.precisions``. A question asks for the first of them. *words* are
    parts of keys. A key matches an entry if it contains all words of the entry: ``zero``,
    ``distributed optimizer``. *within* is a kind of blocks, or an attribute; a file without it
    needs no answer. *answers* are options to copy.
    """

    name: str
    attributes: Sequence[str]
    words: Sequence[str] = ()
    within: str = ""
    answers: Sequence[str] = ()


@record(kw_only=True)
class ImportProblem:
    """An error in a file, at characters *start* to *end*, or in a file *beside* it."""

    message: str
    start: int = 0
    end: int = 0
    help: str = ""
    beside: PlaceBeside | None = None


@record(kw_only=True)
class Translation:
    """A file of another tool as blocks of the language.

    *uses* are catalogue entries that the blocks refer to: ``catalog.precisions.bf16``. *ignored*
    keys are known, and do not affect the cost. *unknown* keys are in no table. *missing* are
    settings that the blocks need but the file does not have; the reason says how to set them.
    *questions* are unknown settings that affect the cost. *facts* are values outside of blocks that
    must be equal in files imported together. *parts* are names of other files of the job that this
    translation contains completely: they are not translated separately. *sought* are names of keys
    that would have been read, and that the file does not have.
    """

    blocks: Sequence[ImportedBlock] = ()
    uses: Sequence[ImportedValue] = ()
    ignored: Sequence[ImportedKey] = ()
    unknown: Sequence[ImportedKey] = ()
    missing: Sequence[ImportedKey] = ()
    questions: Sequence[ImportQuestion] = ()
    facts: Sequence[ImportedValue] = ()
    parts: Sequence[str] = ()
    problems: Sequence[ImportProblem] = ()
    sought: Collection[str] = field(default=(), eq=False, repr=False)


class Importer(ABC):
    """An importer of one file format of another tool: ``--from name``.

    *title* is the tool with the supported versions. *source* is the
    documentation of these keys.
    """

    name: str
    title: str
    source: str = ""
    #: What a job needs and files may lack, by attribute: an option that adds it, to copy.
    needs: Mapping[str, str] = MappingProxyType({})
    #: Kinds of blocks that a file has in full. Defaults of the tools of other files yield to it.
    describes: Collection[str] = ()
    #: What decides the cost. A key that may decide one of these is never left to a default.
    subjects: Sequence[ImportSubject] = ()
    #: Names of all settings of the tool, in every release of *title*. A key outside of them that
    #: resembles one is never left to a default. ``section.*`` are all names of a section.
    keys: Collection[str] = ()

    @abstractmethod
    def recognizes(self, name: str, text: str) -> bool:
        """Return whether a file with this name and text is in the importer's format."""

    def option_for(self, attribute: str, names: Collection[str]) -> str:  # noqa: ARG002
        """Return the command-line option that adds an attribute of ``needs``.

        *names* are the blocks of the job and the blocks to which their attributes refer, such as
        ``device.h100_sxm`` and ``fabric.hgx_h100``: a device may propose its usual fabric.
        """
        return self.needs[attribute]

    def starts(self, file: ImportFile) -> Sequence[ImportFile]:  # noqa: ARG002
        """Return the files that a launch script starts; a missing file has an empty text.

        It is called if no importer recognizes the script itself; the script then has the format of
        these files.
        """
        return ()

    def explain(self, file: ImportFile) -> ImportProblem | None:  # noqa: ARG002
        """Return the reason why a file cannot be imported, if this importer knows its kind.

        It is called if no importer recognizes the file, or a file that it starts.
        """
        return None

    @abstractmethod
    def translate(self, name: str, text: str) -> Translation:
        """Return the blocks that the text describes, and their missing settings."""

    def read(self, file: ImportFile) -> Translation:
        """Return the blocks of a file; override it to use options or neighbouring files."""
        return self.translate(file.name, file.text)


@frozen(slots=False, eq=False)
class ForeignSource(Source):
    """The text of a file of another tool; the subclass of a reader also holds its results.

    *assumptions* are the assumed attributes, each with its value and the reason.
    """

    assumptions: Sequence[tuple[str, str, str]] = field(default=(), repr=False)

    def questions(self, module: Any, given: Collection[str]) -> Sequence[Diagnostic]:  # noqa: ARG002
        """Return errors for values that affect the cost of *module* and are not *given*."""
        return ()

    def explain(
        self,
        error: SpecError,
        module: Any,  # noqa: ARG002
        given: Collection[str],  # noqa: ARG002
        plugins: Any,  # noqa: ARG002
    ) -> SpecError:
        """Return *error* with the options that complete the job in *module*, if any are missing."""
        return error


@record(kw_only=True, eq=False)
class ForeignFile:
    """A file of another tool as a syntax tree. *beside* are the texts of other files that
    it uses.
    """

    source: ForeignSource
    tree: s.Block
    diagnostics: Sequence[Diagnostic] = ()
    beside: Mapping[Path, str] = MappingProxyType({})


class FileReader(ABC):
    """Reader of files that are not specs; it uses the importers of a session."""

    name: str

    @abstractmethod
    def read(self, source: Source, path: Path, options: ImportOptions, session: Any) -> ForeignFile:
        """Return the file as a syntax tree, whose spans are in the file.

        Raises:
            SpecError: The file has errors, or no importer reads it.
        """

    @abstractmethod
    def tool_of(self, name: str, kind: str, session: Any) -> str:
        """Return the name of the importer that reads blocks of *kind* from the file *name*.

        Raises:
            SpecError: No importer does.
        """

"""Variables, arrays and commands of a shell script, which is never executed.

References are expanded from assignments in the file. Other variables are unread, with a reason.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from parcost_formats.tools.shell.arithmetic import ArithmeticTextError, assigned_names
from parcost_formats.tools.shell.builtins import format_printf, sequence_of_numbers
from parcost_formats.tools.shell.conditions import (
    UNDECIDED,
    Operand,
    combined,
    decide,
    emptiness,
    evaluate_test,
    negated,
    options_for,
)
from parcost_formats.tools.shell.expansion import (
    ArgumentFrame,
    ScriptSource,
    WordExpander,
    composed,
    short,
)
from parcost_formats.tools.shell.file_changes import is_target, may_change
from parcost_formats.tools.shell.layers import IN_IF, Layer, ScriptCommand, merge
from parcost_formats.tools.shell.patterns import ShellPatternError, matches
from parcost_formats.tools.shell.values import (
    ARGUMENTS,
    Decision,
    Piece,
    ShellField,
    ShellValue,
    Variable,
    assumption_of,
    field_of,
    settle,
    split,
    text_of,
    unread_piece,
)
from parcost_formats.tools.shell.words import (
    ArithmeticCommand,
    Assignment,
    CaseCommand,
    CommandChain,
    CommandGroup,
    CountingLoop,
    FunctionDefinition,
    IfCommand,
    LoopCommand,
    Redirection,
    ShellNode,
    ShellPipeline,
    ShellTextError,
    ShellToken,
    SimpleCommand,
    TestCommand,
    WordPart,
    arguments,
    parse_script,
    word_parts,
)

__all__ = ["ARGUMENTS", "MAY_CHANGE", "Script", "ShellField", "read_arguments", "read_script"]

_SCHEDULER = re.compile(r"^#SBATCH[ \t]+([^\n#]*)", re.MULTILINE)
_SCHEDULED = re.compile(r"(--[a-z-]+|-[A-Za-z])[= \t]*([^\s=-][^\s]*)")
_LONG_NAMES = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus"}
_VARIABLES_OF_SCHEDULER = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "--ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
}
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"(?<![\w-])([A-Za-z_]\w*)(?:\[[^]]{0,200}\])?\+?=")
_DECLARING = {"export", "local", "declare", "readonly", "typeset"}
_TARGETING = {"read", "mapfile", "readarray", "getopts", "wait", "coproc"}
_PASSING = {
    *("cd", "mkdir", "pushd", "popd", "set", "echo", "module", "ulimit", ":", "true", "shopt"),
    *("export", "unset", "printf", "source", ".", "trap", "sleep", "umask", "alias", "let", "eval"),
}
_WRAPPERS = {"command", "builtin", "exec", "nohup", "time"}
_SHELLS = {"bash", "sh", "zsh", "dash"}
_BLANKS = " \t\n"  # of `IFS` as it is set at first
_READERS = {*_SHELLS, "sbatch", "ssh", "qsub", "bsub"}
_WRITTEN = (".sh", ".bash", ".sbatch", ".slurm", ".job")
_UNREAD = re.compile(r"[$`?*]")
_CONFIGURATIONS = (".json", ".yaml", ".yml")
_WRITTEN_FILE = "file "  # starts the names under which layers hold texts of written files
#: Commands whose first word that is a script is started.
_STARTERS = {"srun", "mpirun", "mpiexec", "numactl", "singularity", "apptainer"}
_ENVIRONMENTS = ("bin/activate", ".bashrc", ".profile", "conda.sh", "/etc/profile", "modules.sh")
_OF_ARGUMENTS = re.compile(r"\$\{?#\}?(?!\w)|\$\{?1\b|\bgetopts?\b")
_MOST_ROUNDS = 1000
_MOST_PASSES = 5
_DEEPEST_CALL = 30
_DEEPEST = 60
MAY_CHANGE = "may change it"  # ends the reason of a file whose text is not known
IN_LOOP = "is set in a loop, which parcost does not evaluate"


def _no_neighbor(path: str) -> str | None:  # noqa: ARG001
    return None


class Script(NamedTuple):
    """The variables and commands of a script.

    *conditional* are words from branches of undecided tests, each with its reason. *scheduler* are
    options of ``#SBATCH`` lines. *assumed* are tests that depend on a default of the script: the
    variable, at the place of the test, with the assumption. *found* are scripts that it starts by
    another path, and *lacking* scripts that are not in its folder. *written* are the texts of files
    that it writes by here-documents before the launch that is read, by path.
    """

    variables: Mapping[str, Variable]
    commands: Sequence[ScriptCall]
    conditional: Sequence[ShellField]
    scheduler: Mapping[str, ShellField]
    assumed: Sequence[ShellField] = ()
    found: Sequence[ShellField] = ()
    lacking: Sequence[ShellField] = ()
    written: Mapping[str, ShellField] = {}

    def neighbor(self, other: Callable[[str], str | None]) -> Callable[[str], str | None]:
        """Return a function that returns texts of written files, and those of *other* files."""

        def find(path: str) -> str | None:
            field = self.find_written(path)
            if field is None:
                return other(path)
            return None if field.unread else field.text

        return find

    def find_written(self, path: str) -> ShellField | None:
        """Return the text that the script writes into a file, None if it does not write the file.

        A plain name is also one of another folder, if the text of that file is not known.
        """
        unread = (
            one for key, one in self.written.items() if one.unread and key.endswith(f"/{path}")
        )
        return self.written.get(posixpath.normpath(path)) or next(unread, None)

    def fields(self, name: str) -> Sequence[ShellField]:
        """Return the words of a variable that are certain."""
        return settle(self._words(name)).certain

    def conditional_fields(self, name: str) -> Sequence[ShellField]:
        """Return the words of a variable that only some branches set."""
        return settle(self._words(name)).conditional

    def _words(self, name: str) -> Sequence[ShellField]:
        variable = self.variables[name]
        pieces = [split([(piece, False) for piece in value]) for value in variable.values]
        return [field_of(value) for values in pieces for value in values]


class ScriptCall(NamedTuple):
    """A command in a script: its certain words, and *conditional* words.

    *environment* are assignments ahead of it. *decision* is the test on which it depends, if any.
    *written* are the texts of files that the script writes before it, by path.
    """

    words: Sequence[ShellField]
    conditional: Sequence[ShellField]
    environment: Mapping[str, ShellField]
    decision: Decision | None
    written: Mapping[str, ShellField]


def read_script(
    text: str,
    environment: Mapping[str, str] | None = None,
    neighbor: Callable[[str], str | None] = _no_neighbor,
    name: str = "script.sh",
) -> Script:
    """Return the variables and commands of the script *text*.

    *environment* has values that replace variables of the script; ``1`` is its first argument.
    *neighbor* returns the texts of sourced files.

    Raises:
        ShellTextError: The text is no script, or its expansion is too large.
    """
    return _ScriptReader(text, environment or {}, neighbor, name).script()


def read_arguments(text: str) -> Sequence[ShellField]:
    """Return the words of a bare list of arguments.

    Raises:
        ShellTextError: A quote has no end.
    """
    reader = _ScriptReader(text, {}, _no_neighbor, "script.sh")
    return [field_of(value) for token in arguments(text) for value in reader.fields(token)]


def split_words(field: ShellField) -> Sequence[ShellField]:
    """Split a word at blanks, as a shell does."""
    return [field_of(value) for value in split([(piece, False) for piece in field.pieces])]


class _ScriptReader(WordExpander):
    """Follows the commands of a script in order, without executing them."""

    def __init__(
        self,
        text: str,
        environment: Mapping[str, str],
        neighbor: Callable[[str], str | None],
        name: str,
    ) -> None:
        super().__init__(ScriptSource(text), environment, name.rpartition("/")[2])
        self._neighbor = neighbor
        self._functions: dict[str, tuple[ShellNode, ScriptSource]] = {}
        self._files: dict[str, Sequence[Piece]] = {}
        self._started: set[str] = set()
        self._reading = [name.rpartition("/")[2]]  # scripts that start one another
        self._found: list[ShellField] = []
        self._lacking: list[ShellField] = []
        self._exited: list[ScriptCommand] = []
        self._returned: list[list[Layer]] = []
        self._loose: list[bool] = []
        self._output: list[Piece] | None = None
        self._ahead: list[ShellValue] = []  # words ahead of a command in a string
        self._context = ""  # the assumption that a branch rests on
        self._calls = 0
        self._nesting = 0
        self._folder = ""
        self._locals: list[dict[str, Variable | None]] = []
        self._assumed: dict[str, ShellField] = {}  # by the assumption
        self._references: set[str] = set()  # names that stand for other ones
        self._attributed: dict[str, str] = {}  # names whose values change as they are set
        self.scheduler: dict[str, Piece] = {}
        for key, value in environment.items():
            variable = Variable([[Piece(value, 0, 0)] if value else []])
            variable.exported = True
            self.layer.variables[key] = variable
        self._read_scheduler()

    def _read_scheduler(self) -> None:
        lines = _SCHEDULER.finditer(self.source.text)
        for found in (one for line in lines for one in self._schedule_devices(line)):
            key = _LONG_NAMES.get(found[1], found[1])
            start, end = self.source.place(found.start(1), found.end(2))
            self.scheduler.setdefault(key, Piece(found[2], start, end))
            for name in _VARIABLES_OF_SCHEDULER.get(key, ()):
                if name not in self.pins and found[2].isdecimal():
                    variable = Variable([[Piece(found[2], start, end)]])
                    variable.exported = True
                    self.layer.variables[name] = variable

    def _schedule_devices(self, line: re.Match[str]) -> Iterator[re.Match[str]]:
        return _SCHEDULED.finditer(self.source.text, line.start(1), line.end(1))

    def script(self) -> Script:
        """Read all commands."""
        text = self.source.text
        if "\0" in text:
            at = text.index("\0")
            raise ShellTextError("the text has a zero byte", at, at + 1)
        try:
            self.run(parse_script(text))
            self._run_written()
        except RecursionError:
            raise ShellTextError("commands in this file nest too deeply", 0, 1) from None
        calls = [self._call(one) for one in [*self.layer.commands, *self._exited]]
        variables = {
            name: variable
            for name in self.layer.names()
            if not name.startswith(_WRITTEN_FILE) and (variable := self.layer.get(name)) is not None
        }
        scheduler = {key: field_of([piece]) for key, piece in self.scheduler.items()}
        assumed = [*self._assumed.values()]
        found = Script(variables, calls, (), scheduler, assumed, self._found, self._lacking)
        conditional = [word for call in calls for word in call.conditional]
        if not calls:
            names = [name for name in variables if name not in self.pins]
            conditional = [word for name in names for word in found.conditional_fields(name)]
        return found._replace(conditional=conditional)

    def _run_written(self) -> None:
        """Read scripts written by here-documents and not started, if the script has no commands."""
        if self.layer.commands or self._exited:
            return
        for path, pieces in self._files.items():
            if path not in self._started and path.endswith(_WRITTEN):
                self.layer.ended = ""
                self._run_text(pieces)

    def _call(self, command: ScriptCommand) -> ScriptCall:
        self.count(sum(piece.weight for value in command.words for piece in value[:1]))
        found = settle(field_of(value) for value in command.words if value)
        environment = {name: field_of(value) for name, value in command.environment}
        written = {
            name.removeprefix(_WRITTEN_FILE): _whole_text(file)
            for name, file in command.files.items()
            if file is not None
        }
        return ScriptCall(found.certain, found.conditional, environment, command.decision, written)

    # Commands

    def run(self, nodes: Sequence[ShellNode]) -> Decision:
        """Read commands in their order; return the status of the last."""
        status = Decision(True)
        for node in nodes:
            if self.layer.ended:
                break
            status = self._execute(node)
        return status

    def _execute(self, node: ShellNode) -> Decision:
        self.count(1)
        self._nesting += 1
        if self._nesting > _DEEPEST:
            raise ShellTextError("commands in this file nest too deeply", 0, 1)
        found = self._dispatch(node)
        self._nesting -= 1
        return found

    def _dispatch(self, node: ShellNode) -> Decision:
        if isinstance(node, CommandChain):
            if node.background:
                self._subshell(lambda: self._chain(node))
                return Decision(True)
            return self._chain(node)
        if isinstance(node, SimpleCommand):
            return self._simple(node)
        if isinstance(node, ShellPipeline):
            return self._pipeline(node)
        if isinstance(node, IfCommand):
            return self._if(node)
        if isinstance(node, LoopCommand):
            return self._while(node) if node.test else self._for(node)
        if isinstance(node, CountingLoop):
            return self._count_loop(node)
        if isinstance(node, CaseCommand):
            return self._case(node)
        if isinstance(node, CommandGroup):
            if node.redirections and self._output is not None:
                self._unknown_output("a redirection")
            for redirection in node.redirections:
                self._forget_name(redirection.name, "is changed by a redirection")
            files = self._written_files()
            if node.is_subshell:
                status = self._subshell(lambda: self.run(node.commands))
            else:
                status = self.run(node.commands)
            self._mark_targets(node.redirections, files)
            return status
        if isinstance(node, FunctionDefinition):
            self._functions[node.name] = (node.body, self.source)
            return Decision(True)
        if isinstance(node, TestCommand):
            return self._test(node.words, double=True)
        return self._arithmetic_command(node)

    def _test(self, words: Sequence[ShellToken], *, double: bool) -> Decision:
        found = evaluate_test(self, words, double=double)
        return found if found.value is not None else found._replace(empty=emptiness(words))

    def _arithmetic_command(self, node: ArithmeticCommand) -> Decision:
        notes: list[str] = []
        try:
            value = self.evaluate_text(node.text, notes)
        except ArithmeticTextError as error:
            answers = error.args[1] if len(error.args) > 1 else ()
            return Decision(None, "", answers, str(error.args[0]) if error.args else "")
        return Decision(bool(value), next(filter(None, notes), ""))

    def _chain(self, node: CommandChain) -> Decision:
        status = self._execute(node.first)
        for operator, command in node.rest:
            if self.layer.ended:
                break
            wanted = operator == "&&"
            if status.value is None:
                branch, following = self._branch(partial(self._execute, command))
                if wanted and self._is_default(status, branch):
                    self._adopt_default(status, branch)
                else:
                    self._merge([branch, Layer(self.layer)], status)
                status = combined([status, following], is_and=wanted)
            elif status.value != wanted:
                self._note(status, command)
            else:
                self._note(status, command)
                before = self._context
                self._context = before or status.assumption
                following = self._execute(command)
                self._context = before
                why = following.assumption or status.assumption
                status = following._replace(assumption=why)
        return status

    def _branch(self, part: Callable[[], Decision]) -> tuple[Layer, Decision]:
        """Read commands in a new layer; return the layer and their exit status."""
        outer, self.layer = self.layer, Layer(self.layer)
        printed_before = len(self._output) if self._output is not None else 0
        status = part()
        branch, self.layer = self.layer, outer
        if self._output is not None and len(self._output) != printed_before:
            self._unknown_output("an undecided test")
        return branch, status

    def _merge(self, branches: Sequence[Layer], decision: Decision, why: str = IN_IF) -> None:
        """Merge undecided branches, except those that exit the script."""
        live: list[Layer] = []
        for branch in branches:
            if branch.ended == "exit":
                self._exited += [
                    one._replace(decision=one.decision or decision) for one in branch.commands
                ]
            elif branch.ended == "return" and self._returned:
                self._returned[-1].append(branch)
            else:
                if branch.ended and self._loose:
                    self._loose[-1] = True
                branch.ended = ""
                live.append(branch)
        if not live:
            self.layer.ended = branches[0].ended
        elif len(live) == 1:
            self.layer.adopt(live[0])
        else:
            self.count(merge(self.layer, live, decision, why))

    def _decided(self, branches: Sequence[tuple[Decision, Sequence[ShellNode]]]) -> Decision:
        """Read the branch that the tests select, or all possible ones if they are undecided."""
        possible: list[Layer] = []
        undecided: list[Decision] = []
        before = self._context
        status = Decision(True)
        for decision, body in branches:
            if decision.value is not None and body:
                self._note(decision, body[0])
            if decision.value is False:
                continue
            if decision.value and not undecided:
                self._context = before or decision.assumption
                status = self.run(body)
                self._context = before
                return status
            layer, _ = self._branch(partial(self.run, body))
            if not possible and not decision.value and self._is_default(decision, layer):
                self._adopt_default(decision, layer)
                return Decision(True)
            possible.append(layer)
            if decision.value:
                break
            undecided.append(decision)
        else:
            possible.append(Layer(self.layer))
        if not undecided:
            return Decision(True)
        joined = combined(undecided, is_and=True)
        if possible[-1].ended == "exit" and not any(one.empty for one in undecided):
            answers = tuple(one for one in joined.answers if not one.endswith("="))
            joined = joined._replace(answers=answers or joined.answers)
        self._merge(possible, joined)
        return joined._replace(value=None)

    def _note(self, decision: Decision, node: ShellNode) -> None:
        """Store the assumption on which a command depends."""
        why = decision.assumption
        if why and why not in self._assumed:
            while isinstance(node, CommandChain):
                node = node.first
            start, end = getattr(node, "start", 0), getattr(node, "end", 0)
            name = re.search(r"`([^`]*)`|(argument \d+)", why)
            shown = (name[1] or name[2]) if name is not None else why
            self._assumed[why] = field_of([Piece(shown, *self.source.place(start, end), "", why)])

    def _is_default(self, decision: Decision, branch: Layer) -> bool:
        """Return whether a branch sets a variable that it found empty and nothing else sets."""
        variable = branch.variables.get(decision.empty) if decision.empty else None
        if variable is None or variable.unread or branch.ended or branch.commands:
            return False
        known = not any(unread_piece(value) for value in variable.values)
        return known and self.layer.get(decision.empty) is None

    def _adopt_default(self, decision: Decision, branch: Layer) -> None:
        """Apply the assignments of a branch as defaults, with an assumption."""
        why = f"`{decision.empty}` is not set in the file: its default there"
        for variable in branch.variables.values():
            if variable is not None:
                variable.values = _assumed_values(variable.values, why)
        self.layer.adopt(branch)

    def _if(self, node: IfCommand) -> Decision:
        branches: list[tuple[Decision, Sequence[ShellNode]]] = []
        excluded = ""
        for test, body in node.branches:
            decision = self.run(test)
            if self.layer.ended:
                return decision
            branches.append((decision, body))
            if decision.value:
                break
            excluded = excluded or decision.assumption
        else:
            branches.append((Decision(True, excluded), node.otherwise))
        return self._decided(branches)

    def _case(self, node: CaseCommand) -> Decision:
        word = self.value(node.word.parts)
        if any(end == ";;&" for _, _, end in node.branches):
            return self._undecided_loop([], [one for _, body, _ in node.branches for one in body])
        name = _subject(node.word)
        operand = Operand(word, None, name)
        branches: list[tuple[Decision, Sequence[ShellNode]]] = []
        for place, (patterns, _, _) in enumerate(node.branches):
            body = [*node.branches[place][1]]
            following = place
            while node.branches[following][2] == ";&" and following + 1 < len(node.branches):
                following += 1
                body += node.branches[following][1]
            decision = combined([self._matches(operand, one) for one in patterns], is_and=False)
            branches.append((decision, body))
            if decision.value:
                break
        return self._decided(branches)

    def _matches(self, operand: Operand, token: ShellToken) -> Decision:
        pattern = self.pattern(token.parts)
        if pattern is None:
            return UNDECIDED
        text = "".join(char for char, _ in pattern)
        if text == "*" and not pattern[0][1]:
            return Decision(True, assumption_of(operand.value))
        plain = all(literal or char not in "*?[" for char, literal in pattern)
        answers = options_for(operand, [text] if plain else ())
        try:
            return decide([operand], lambda found: matches(pattern, found[0]), answers)
        except ShellPatternError:
            return Decision(None, "", answers, "this pattern is not evaluated")

    # Loops

    def _for(self, node: LoopCommand) -> Decision:
        if node.name in self.pins:
            values: list[list[Piece]] = [[Piece(self.pins[node.name], 0, 0)]]
        elif node.words is None:
            given = self.frames[-1].arguments
            if given is None:
                return self._argument_loop([], node.body)
            values = [list(one) for one in given]
        else:
            values = [value for word in node.words for value in self.fields(word)]
        bodies = node.body
        unread = next((piece for value in values if (piece := unread_piece(value))), None)
        globbed = any(re.search(r"[*?]", text_of(value)) for value in values)
        if node.kind == "select" or unread is not None or globbed:
            if unread is not None and unread.unread == ARGUMENTS:
                return self._argument_loop([node.name], bodies)
            return self._undecided_loop([node.name], bodies)
        outer, self.layer = self.layer, Layer(self.layer)
        self._loose.append(False)
        for value in values:
            self.assign(node.name, Variable([value]), pinned=False)
            self.run(bodies)
            if self._leaves_loop():
                break
        self._end_loop(outer, bodies)
        return Decision(True)

    def _leaves_loop(self) -> bool:
        ended = self.layer.ended
        if ended in ("break", "continue"):
            self.layer.ended = ""
        return bool(ended) and ended != "continue"

    def _end_loop(
        self,
        outer: Layer,
        body: Sequence[ShellNode],
        step: Callable[[], Decision] | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        """Keep the variables of a loop; all are uncertain if a test inside is undecided."""
        loose = self._loose.pop()
        if loose or is_open:
            ended, self.layer.ended = self.layer.ended, ""
            self._undecided_loop([*self.layer.variables], body, step)
            self.layer.ended = "" if ended in ("break", "continue") else ended
        inner, self.layer = self.layer, outer
        self.layer.adopt(inner)

    def _loop_variable(self, name: str) -> Variable:
        variable = self.layer.get(name)
        kind = variable.kind if variable is not None else "text"
        answers = (f"--set-env {name}=VALUE",) if kind == "text" else ()
        return Variable([], kind, f"`{name}` {IN_LOOP}", answers)

    def _count_loop(self, node: CountingLoop) -> Decision:
        def holds(text: str) -> Decision:
            return self._arithmetic_command(ArithmeticCommand(text, 0, 0))

        if node.first.strip():
            holds(node.first)
        return self._rounds(
            lambda: holds(node.test) if node.test.strip() else Decision(True),
            node.body,
            lambda: holds(node.step) if node.step.strip() else Decision(True),
        )

    def _while(self, node: LoopCommand) -> Decision:
        text = self.source.text[node.start : node.end].partition("do")[0]
        if self.frames[-1].arguments is None and _OF_ARGUMENTS.search(text):
            return self._argument_loop([], [*node.test, *node.body])
        wanted = node.kind == "while"

        def test() -> Decision:
            found = self.run(node.test)
            return found if wanted else negated(found)

        return self._rounds(test, node.body)

    def _rounds(
        self,
        test: Callable[[], Decision],
        body: Sequence[ShellNode],
        step: Callable[[], Decision] | None = None,
    ) -> Decision:
        """Follow a loop round by round, as long as its test decides."""
        first = test()
        if first.value is False:
            return Decision(True)
        outer, self.layer = self.layer, Layer(self.layer)
        if first.value is None:
            self.layer = outer
            return self._undecided_loop([], body, step)
        self._loose.append(False)
        is_open = True
        for _ in range(_MOST_ROUNDS):
            self.run(body)
            if self._leaves_loop() or self._loose[-1]:
                is_open = self._loose[-1]
                break
            if step is not None:
                step()
            status = test()
            if status.value is not True:
                is_open = status.value is None
                break
        self._end_loop(outer, body, step, is_open=is_open)
        return Decision(True)

    def _written_names(
        self, names: Sequence[str], body: Sequence[ShellNode], step: Callable[[], Decision] | None
    ) -> tuple[Layer, dict[str, None]]:
        """Return the layer after one round of a loop, and the names that rounds may set."""
        written = dict.fromkeys(names)

        def round_of() -> Decision:
            for name in written:
                self.layer.variables[name] = self._loop_variable(name)
            status = self.run(body)
            if step is not None and not self.layer.ended:
                step()
            return status

        self._loose.append(False)
        for _ in range(_MOST_PASSES):
            layer, _ = self._branch(round_of)
            new = [name for name in layer.variables if name not in written]
            written.update(dict.fromkeys(new))
            if not new:
                break
        self._loose.pop()
        return layer, written

    def _undecided_loop(
        self,
        names: Sequence[str],
        body: Sequence[ShellNode],
        step: Callable[[], Decision] | None = None,
    ) -> Decision:
        """Read a loop of unknown rounds: its variables become unknown."""
        layer, written = self._written_names(names, body, step)
        for name in written:
            self.layer.variables[name] = self._loop_variable(name)
        decision = Decision(None, "", (), "in a loop, which parcost does not evaluate")
        self.layer.commands += [
            one._replace(decision=one.decision or decision) for one in layer.commands
        ]
        return UNDECIDED

    def _argument_loop(self, names: Sequence[str], body: Sequence[ShellNode]) -> Decision:
        """Read a loop over the script's arguments, assuming that there are none."""
        layer, written = self._written_names(names, body, None)
        for name in written:
            variable = self.layer.own(name)
            if variable is None or variable.unread or variable.kind == "map":
                continue
            why = f"`{name}` without arguments of the script, which may set it"
            variable.values = _assumed_values(variable.values, why)
        decision = Decision(None, "", (), "in a loop over arguments")
        self.layer.commands += [
            one._replace(decision=one.decision or decision) for one in layer.commands
        ]
        return UNDECIDED

    # Shells of their own

    def _subshell(self, part: Callable[[], Decision]) -> Decision:
        """Read commands in a subshell, whose variables are discarded."""
        outer, self.layer = self.layer, Layer(self.layer)
        folder = self._folder
        status = part()
        inner, self.layer = self.layer, outer
        self._folder = folder
        self.layer.commands += inner.commands
        for name, variable in inner.variables.items():
            if name.startswith(_WRITTEN_FILE):
                self.layer.variables[name] = variable
        return status

    def _pipeline(self, node: ShellPipeline) -> Decision:
        if len(node.commands) == 1:
            return negated(self._execute(node.commands[0]))
        output, self._output = self._output, None
        for command in node.commands[:-1]:
            self._subshell(partial(self._execute, command))
        self._output = output
        last = node.commands[-1]
        status = self._subshell(lambda: self._execute(last))
        return negated(status) if node.negated else status

    def capture(self, part: WordPart) -> Sequence[Piece]:
        """Return the output of the commands in ``$(...)``, as far as it is constant."""
        shown = self.source.text[part.start : part.end]
        outer = self._output
        self._output = []
        commands = part.commands
        if not commands and part.text.startswith("`") and "\\" in part.text:
            self._unknown_output("a command")
        self.nested(lambda: self._subshell(lambda: self.run(commands)))
        found, self._output = self._output, outer
        while found and not found[-1].unread and found[-1].text.endswith("\n"):
            last = found.pop()
            kept = last.text.rstrip("\n")
            if kept:
                found.append(last._replace(text=kept))
        if any(piece.unread == _NOT_PRINTED for piece in found):
            why = f"`{short(shown)}` is a command, and none is run"
            return [Piece(shown, *self.source.place(part.start, part.end), why)]
        return found

    def _print(self, pieces: Sequence[Piece]) -> None:
        if self._output is not None:
            self.count(len(pieces), sum(len(piece.text) for piece in pieces))
            self._output += pieces

    def _unknown_output(self, what: str) -> None:
        if self._output is not None:
            self._output.append(Piece(what, 0, 0, _NOT_PRINTED))

    # Assignments

    def assign(self, name: str, variable: Variable, *, pinned: bool = True) -> None:
        """Set a variable, unless the user has set it by an option."""
        before = self.layer.get(name)
        if name in self._references:
            for other in list(self.layer.names()):
                if other not in self.pins:
                    self._forget_name(other, f"may be changed by `{name}`, which stands for it")
        if name in self._attributed and not variable.unread:
            texts = [text_of(value) for value in variable.values]
            if self._attributed[name] != "i" or not all(map(_WHOLE.fullmatch, texts)):
                why = f"`{name}` is changed by `declare -{self._attributed[name]}`"
                variable = Variable([], variable.kind, f"{why}, which is not read")
        if before is not None and before.fixed:
            why = f"`{name}` is `readonly` and set more than once"
            variable = Variable([], variable.kind, why)
            variable.fixed = True
        if self._context and not variable.unread:
            kept = {id(piece) for value in before.values for piece in value} if before else set()
            variable.values = _assumed_values(variable.values, self._context, kept)
        if pinned and name in self.pins and variable.kind == "text":
            variable = self._pinned(name, variable)
        if before is not None:
            variable.exported = variable.exported or before.exported
        self.layer.variables[name] = variable

    def _pinned(self, name: str, variable: Variable) -> Variable:
        text = self.pins[name]
        value = variable.values[0] if variable.values else []
        place = (value[0].start, value[-1].end) if value else (0, 0)
        note = ""
        if not variable.unread and unread_piece(value) is None and text_of(value) != text:
            note = f"--set-env {name}={text}, in place of {text_of(value)[:40] or 'nothing'}"
        return Variable([[Piece(text, *place, "", note)]])

    def _assign_node(self, node: Assignment) -> None:
        name = node.name
        if node.elements is not None:
            self._assign_array(node)
            return
        self.extended = name
        value = self.value(node.word.parts)
        self.extended = ""
        if node.key:
            self._assign_element(node, value)
            return
        self._answer(name, value)
        before = self.layer.get(name)
        if node.adds and (name in self._attributed or name in self._references):
            self._forget_name(name, "is changed by `declare`")
            self.assign(name, Variable([[]], "text", f"`{name}` is changed by `declare`"))
            return
        if node.adds and before is not None:
            if not before.unread and before.kind != "map":
                self._add_to(name, value)
            return
        if node.adds and name not in self.pins and not self._is_known_unset(name):
            value = [self._unset_piece(name, node), *value]
        if before is not None and before.kind == "array" and not before.unread:
            variable = self.layer.own(name)
            assert variable is not None
            variable.values[:1] = [value]
            return
        refers = any(
            part.kind != "text" and name in _NAME.findall(part.text) for part in node.word.parts
        )
        self.assign(name, Variable([value]), pinned=not refers or unread_piece(value) is not None)

    def _add_to(self, name: str, value: list[Piece]) -> None:
        """Add to the text of a variable, or to the first element of an array: ``NAME+=text``."""
        variable = self.layer.own(name)
        assert variable is not None
        if variable.kind == "array" and not variable.values:
            variable.values.append([])
        if self._context:
            value = [one._replace(assumption=one.assumption or self._context) for one in value]
        if variable.fixed:
            self.assign(name, variable)
        elif variable.kind == "array":
            variable.values[0] = [*variable.values[0], *value]
        elif variable.values:
            variable.values[0].extend(value)
        else:
            variable.values.append(value)

    def _unset_piece(self, name: str, node: Assignment) -> Piece:
        """Return an empty piece: ``NAME+=`` on a variable that the file does not set."""
        why = f"`{name}` is not set in the file: nothing stands ahead of what is added"
        return Piece("", *self.source.place(node.start, node.end), "", why)

    def _answer(self, name: str, value: list[Piece]) -> None:
        """Suggest the option that sets *name*, if its value is unknown and has no suggestion."""
        positional = value and re.match(r"--set-env \d", "".join(value[0].answers[:1]))
        if len(value) == 1 and value[0].unread and (positional or not value[0].answers):
            value[0] = value[0]._replace(answers=(f"--set-env {name}=VALUE",))

    def _assign_element(self, node: Assignment, value: list[Piece]) -> None:
        variable = self.layer.own(node.name)
        if variable is not None and variable.unread:
            return
        if variable is None:
            variable = Variable([], "array")
            self.layer.variables[node.name] = variable
        key = self._index_text(node.key)
        place: int | None = None
        if variable.kind == "map" and unread_piece(key) is None:
            text = text_of(key)
            place = variable.keys.setdefault(text, len(variable.values))
        elif variable.kind != "map":
            try:
                place = self.evaluate(key)
            except ArithmeticTextError:
                place = None
            if place is not None and place < 0:
                place += len(variable.values)
            if variable.kind == "text":
                variable = Variable(variable.values, "array")
                self.layer.variables[node.name] = variable
        if place is None or not 0 <= place <= len(variable.values) or variable.fixed:
            why = f"`{node.name}` is set in a part, which is not read"
            self.layer.variables[node.name] = Variable([], variable.kind, why)
        elif place == len(variable.values):
            variable.values.append(value)
        elif node.adds:
            variable.values[place] = [*variable.values[place], *value]
        else:
            variable.values[place] = value

    def _index_text(self, text: str) -> Sequence[Piece]:
        outer, self.source = self.source, ScriptSource(text, place=(0, 0))
        found = self.value(word_parts(text, 0, len(text), quoted=False))
        self.source = outer
        return found

    def _assign_array(self, node: Assignment) -> None:
        before = self.layer.get(node.name)
        is_map = before is not None and before.kind == "map"
        values: list[list[Piece]] = []
        keys: dict[str, int] = {}
        for key_text, word in node.elements or ():
            if not key_text:
                values += self.fields(word)
                continue
            value = self.value(word.parts)
            key = text_of(self._index_text(key_text))
            if is_map:
                if key in keys:
                    values[keys[key]] = value
                else:
                    keys[key] = len(values)
                    values.append(value)
            elif key == str(len(values)):
                values.append(value)
            else:
                why = f"`{node.name}` is set in a part, which is not read"
                self.assign(node.name, Variable([], "array", why))
                return
        if is_map and len(keys) != len(values):
            why = f"`{node.name}` is set in a part, which is not read"
            self.assign(node.name, Variable([], "map", why))
            return
        if not node.adds or before is None:
            self.assign(node.name, Variable(values, "map" if is_map else "array", keys=keys))
            return
        variable = self.layer.own(node.name)
        assert variable is not None
        if variable.unread or variable.fixed:
            if variable.fixed:
                self.assign(node.name, variable)
            return
        if self._context:
            values = [
                [one._replace(assumption=one.assumption or self._context) for one in value]
                for value in values
            ]
        if is_map:
            for key, place in keys.items():
                known = variable.keys.get(key)
                if known is None:
                    variable.keys[key] = len(variable.values)
                    variable.values.append(values[place])
                else:
                    variable.values[known] = values[place]
        else:
            variable.kind = "array"
            variable.values.extend(values)

    def _forget_name(self, name: str, why: str) -> None:
        if _NAME.fullmatch(name):
            answers = (f"--set-env {name}=VALUE",)
            unread = Variable([], "text", f"`{name}` {why}, which is not run", answers)
            if name in self._references:
                self.layer.variables[name] = unread
            else:
                self.assign(name, unread)

    def _forget_all(self, node: SimpleCommand) -> None:
        """Mark all variables as unknown after a command that may set any of them."""
        shown = short(self.source.text[node.start : node.end])
        start, _ = self.source.place(node.start, node.end)
        line = self._line(start)
        for name in list(self.layer.names()):
            variable = self.layer.get(name)
            is_file = name.startswith(_WRITTEN_FILE)
            if name in self.pins or is_file:
                continue
            if variable is not None and not variable.unread:
                why = f"`{name}` may be set by `{shown}` in line {line}, which is not run"
                answers = (f"--set-env {name}=VALUE",) if variable.kind == "text" else ()
                self.layer.variables[name] = Variable([], variable.kind, why, answers)
        self.count(len(self.layer.variables))
        self.missing = f"`{shown}` in line {line}"

    def _line(self, at: int) -> int:
        return 1 + self._first.text.count("\n", 0, at)

    # Simple commands

    def _simple(self, node: SimpleCommand) -> Decision:
        for redirection in node.redirections:
            self._forget_name(redirection.name, "is changed by a redirection")
        first = node.words[0] if node.words else None
        if first is None:
            for one in node.assignments:
                self._assign_node(one)
            self._mark_targets(node.redirections, self._written_files())
            return Decision(True)
        key = first.plain if isinstance(first, ShellToken) else ""
        words = list(node.words)
        while key in ("command", "builtin") and len(words) > 1:
            words = words[1:]
            key = words[0].plain if isinstance(words[0], ShellToken) else ""
            if key.startswith("-"):
                return UNDECIDED
        if key in ("[", "test"):
            tokens = [word for word in words[1:] if isinstance(word, ShellToken)]
            if key == "[":
                tokens = tokens[:-1] if tokens and tokens[-1].plain == "]" else tokens
            return self._test(tokens, double=False)
        if key in _DECLARING:
            return self._declare(key, words[1:], node)
        fields = [
            value for word in words if isinstance(word, ShellToken) for value in self.fields(word)
        ]
        if not fields:
            for one in node.assignments:
                self._assign_node(one)
            return Decision(True)
        if any(value and value[0].unread == ARGUMENTS for value in fields[:1]):
            return UNDECIDED
        environment = [(one.name, self.value(one.word.parts)) for one in node.assignments]
        return self._call_with(node, fields, environment)

    def _call_with(
        self,
        node: SimpleCommand,
        fields: list[list[Piece]],
        environment: list[tuple[str, list[Piece]]],
    ) -> Decision:
        """Read a command with its own environment, as in ``TP=4 bash run.sh``."""
        before = {name: self.layer.get(name) for name, _ in environment}
        self._assign_ahead(environment)
        files = self._written_files()
        status = self._call_function(node, fields, environment)
        self._mark_changed(node, fields, files)
        self.layer.variables.update(before)
        return status

    def _assign_ahead(self, environment: Sequence[tuple[str, list[Piece]]]) -> None:
        for name, value in environment:
            variable = Variable([value])
            variable.exported = True
            self.assign(name, variable)

    def _call_function(
        self,
        node: SimpleCommand,
        fields: list[list[Piece]],
        environment: list[tuple[str, list[Piece]]],
    ) -> Decision:
        key = text_of(fields[0])
        if key in self._functions and not unread_piece(fields[0]):
            return self._function(key, fields[1:])
        handler = getattr(self, f"_do_{_HANDLED[key]}", None) if key in _HANDLED else None
        if handler is not None:
            status: Decision = handler(node, fields)
            return status
        document = self._document(node)
        if key == "read" and document is not None and self._read_whole(fields[1:], document):
            return UNDECIDED
        if key in _TARGETING:
            for value in fields[1:]:
                text = text_of(value)
                found = _NAME.match(text)
                if unread_piece(value) is not None and not (found and found.end() < len(text)):
                    self._forget_all(node)
                elif found is not None and (found.end() == len(text) or text[found.end()] == "["):
                    self._forget_name(found[0], f"is changed by `{key}`")
            return UNDECIDED
        if document is not None and key == "cat":
            return self._written_document(node, fields, document)
        if document is not None and key == "tee" and len(fields) > 1:
            for value in fields[1:]:
                if not text_of(value).startswith("-"):
                    self._write(value, document, adds=text_of(fields[1]) == "-a")
            return Decision(True)
        if key in _PASSING:
            return Decision(True)
        self._unknown_output(key)
        return self._external(node, fields, environment, document)

    def _read_whole(self, words: Sequence[ShellValue], document: list[Piece]) -> bool:
        """Handle ``read -r -d '' NAME`` with a here-document; return whether *words* are that."""
        texts = [text_of(value) for value in words]
        options = [text for text in texts[:-1] if text not in ("-r", "-d", "-rd", "")]
        whole = any(one in ("-d", "-rd") for one in texts) and "" in texts
        if options or not whole or not _NAME.fullmatch(texts[-1]):
            return False
        pieces = list(document)
        if pieces:
            pieces[0] = pieces[0]._replace(text=pieces[0].text.lstrip(_BLANKS))
            pieces[-1] = pieces[-1]._replace(text=pieces[-1].text.rstrip(_BLANKS))
        self.assign(texts[-1], Variable([pieces]))
        return True

    def _document(self, node: SimpleCommand) -> list[Piece] | None:
        for redirection in node.redirections:
            if redirection.document is not None:
                return self.value(redirection.document)
            if redirection.operator == "<<<":
                return self.value(redirection.target.parts)
        return None

    def _written_document(
        self, node: SimpleCommand, fields: Sequence[ShellValue], document: list[Piece]
    ) -> Decision:
        if len(fields) > 1:
            self._unknown_output("cat")
            return Decision(True)
        for redirection in node.redirections:
            if redirection.operator in (">", ">>", ">|"):
                target = self.value(redirection.target.parts)
                self._write(target, document, adds=redirection.operator == ">>")
                return Decision(True)
        self._print(document)
        return Decision(True)

    def _write(self, target: ShellValue, pieces: Sequence[Piece], *, adds: bool) -> None:
        """Store the text that a command writes into a file; a branch is undone with its layer."""
        path = text_of(target)
        before = self._files.get(path, ()) if adds else ()
        self._files[path] = [*before, *pieces]
        if unread_piece(target) is not None:
            return
        name = f"{_WRITTEN_FILE}{posixpath.normpath(path)}"
        known = self.layer.get(name) if adds else None
        first = known.values[0] if known is not None and known.values else []
        found = Variable([[*first, *pieces]], unread=known.unread if known is not None else "")
        found.exported = True
        self.assign(name, found)

    def _written_files(self) -> dict[str, Variable | None]:
        """Return the files that the script has written so far, by variable name."""
        names = (f"{_WRITTEN_FILE}{posixpath.normpath(path)}" for path in self._files)
        return {name: self.layer.get(name) for name in names}

    def _mark_changed(
        self,
        node: SimpleCommand,
        fields: Sequence[ShellValue],
        files: Mapping[str, Variable | None],
    ) -> None:
        """Mark *files* that a command may change; a text that it has just written is known."""
        key = text_of(fields[0])
        if not files or key in self._functions or _HANDLED.get(key) == "wrapper":
            return
        self._mark_targets(node.redirections, files)
        texts = [text_of(value) for value in fields]
        document = text_of(self._document(node) or [])
        for name in files:
            if may_change(name.removeprefix(_WRITTEN_FILE), texts, document):
                self._mark_file(name, files, node.start, node.end)

    def _mark_targets(
        self, redirections: Sequence[Redirection], files: Mapping[str, Variable | None]
    ) -> None:
        """Mark *files* that are targets of redirections of text that is not known."""
        for one in redirections:
            if not files or ">" not in one.operator:
                continue
            target = self.value(one.target.parts)
            is_read = unread_piece(target) is None
            for name in files:
                path = name.removeprefix(_WRITTEN_FILE)
                if is_target(path, text_of(target), is_read=is_read):
                    self._mark_file(name, files, one.target.start, one.target.end)

    def _mark_file(
        self, name: str, files: Mapping[str, Variable | None], start: int, end: int
    ) -> None:
        """Mark a file as not known, if it still is as in *files*."""
        before = files[name]
        if before is None or self.layer.get(name) is not before:
            return
        shown = short(self.source.text[start:end])
        line = self._line(self.source.place(start, end)[0])
        found = Variable([], "text", f"`{shown}` in line {line} {MAY_CHANGE}")
        found.exported = True
        self.layer.variables[name] = found

    def _external(
        self,
        node: SimpleCommand,
        fields: list[list[Piece]],
        environment: list[tuple[str, list[Piece]]],
        document: list[Piece] | None,
    ) -> Decision:
        """Store a command of an external program, or read the script that it starts."""
        key = text_of(fields[0]).rpartition("/")[2]
        for place, value in enumerate(fields[:-1]):
            program = text_of(value).rpartition("/")[2]
            following = text_of(fields[place + 1])
            if program in _SHELLS and re.fullmatch(r"-[a-z]*c[a-z]*", following):
                if place + 2 < len(fields):
                    rest = fields[place + 3 :]
                    self._started_text(fields[:place], fields[place + 2], rest)
                return UNDECIDED
        if document is not None and key in _READERS and len(fields) < 3 + (key == "ssh") * 9:
            self._started_text([], document, ())
            return UNDECIDED
        if key == "ssh" and len(fields) > 2:
            self._started_text([], fields[-1], ())
            return UNDECIDED
        wrap = next((value for value in fields if text_of(value).startswith("--wrap")), None)
        if key == "sbatch" and wrap is not None:
            return self._wrapped(fields, wrap)
        script = _started_script(fields)
        if script is not None:
            path = text_of(fields[script])
            if self._relative(path) in self._reading:  # `sbatch "$0"`
                return UNDECIDED
            found = self._script_text(path, fields[script])
            if found is not None:
                handed = _exports(fields[:script])
                given = fields[script + 1 :]
                self._subshell(lambda: self._run_script(found, given, path, handed))
                return UNDECIDED
        words = [*self._ahead, *fields]
        self.layer.commands.append(ScriptCommand(words, environment, files=self._written_files()))
        del node
        return UNDECIDED

    def _wrapped(self, fields: list[list[Piece]], wrap: list[Piece]) -> Decision:
        text = text_of(wrap)
        if "=" in text:
            first = wrap[0]
            cut = first.text.partition("=")[2]
            start = first.end - len(cut)
            self._started_text([], [first._replace(text=cut, start=start), *wrap[1:]], ())
        else:
            place = fields.index(wrap)
            if place + 1 < len(fields):
                self._started_text([], fields[place + 1], ())
        return UNDECIDED

    def _script_text(self, path: str, value: ShellValue) -> ScriptSource | None:
        """Return the script that a command starts; list it as missing if it is not there."""
        if path in self._files:
            self._started.add(path)
            file = self.layer.get(f"{_WRITTEN_FILE}{posixpath.normpath(path)}")
            if file is None or not file.unread.endswith(MAY_CHANGE):
                return composed(self._files[path])
            self._lacking.append(field_of([*value])._replace(assumption="", unread=""))
            return None
        if not path.endswith(_WRITTEN):
            return None
        place = field_of([piece._replace(assumption="", unread="") for piece in value])
        for name in _places_of(self._relative(path)):
            text = self._neighbor(name) if name not in self._reading else None
            if text is None:
                continue
            if name != self._relative(path):
                self._found.append(place._replace(assumption=f"`{name}` beside this file"))
            return ScriptSource(text, place=(place.start, place.end))
        self._lacking.append(place)
        return None

    def _relative(self, path: str) -> str:
        plain = re.sub(r"^(\./)+", "", path)
        if not self._folder or path.startswith("/"):
            return plain
        return f"{self._folder}/{plain}"

    def _run_script(
        self,
        source: ScriptSource,
        given: Sequence[ShellValue],
        path: str,
        handed: Sequence[tuple[str, list[Piece]]],
    ) -> Decision:
        """Read a script started with arguments; it sees only exported variables."""
        for name in list(self.layer.names()):
            variable = self.layer.get(name)
            if variable is not None and not variable.exported and name not in self.pins:
                self.layer.variables[name] = None
        self._assign_ahead(handed)
        self._reading.append(self._relative(path))
        status = self._run_source(source, given)
        self._reading.pop()
        return status

    def _started_text(
        self, ahead: Sequence[ShellValue], value: list[Piece], given: Sequence[ShellValue]
    ) -> None:
        before = self._ahead
        self._ahead = [*before, *ahead]
        self._subshell(lambda: self._run_source(composed(value), given[1:]))
        self._ahead = before

    def _run_text(self, pieces: Sequence[Piece]) -> Decision:
        return self._run_source(composed(list(pieces)), None)

    def _run_source(self, source: ScriptSource, given: Sequence[ShellValue] | None) -> Decision:
        """Read a text as commands, with the arguments *given* or the current ones."""
        self._calls += 1
        if self._calls > _DEEPEST_CALL:
            raise ShellTextError("scripts in this file start each other too deeply", 0, 1)
        self.count(1, len(source.text))
        outer, self.source = self.source, source
        if given is not None:
            self.frames.append(ArgumentFrame(given))
        try:
            self._read_scheduler_of(source)
            nodes = parse_script(source.text)
        except ShellTextError as error:
            raise ShellTextError(str(error), *source.place(error.start, error.end)) from None
        status = self.run(nodes)
        if given is not None:
            self.frames.pop()
        self.source = outer
        self._calls -= 1
        return status

    def _read_scheduler_of(self, source: ScriptSource) -> None:
        if "#SBATCH" in source.text:
            self._read_scheduler()

    # Builtins

    def _declare(
        self, key: str, words: Sequence[ShellToken | Assignment], node: SimpleCommand
    ) -> Decision:
        options, named = "", list[str]()
        for word in words:
            if isinstance(word, Assignment):
                self._localize(key, word.name)
                if "A" in options and word.elements is not None and not word.adds:
                    self.layer.variables[word.name] = Variable([], "map")
                self._assign_node(word)
                named.append(word.name)
                continue
            for value in self.fields(word):
                text = text_of(value)
                if text.startswith(("-", "+")) and unread_piece(value) is None:
                    options += text[1:]
                else:
                    named += self._declare_word(key, options, value, node)
        if key != "export" and "n" in options:
            self._forget_all(node)
            self._references.update(named)
        for name in named:
            self._mark_declared(key, options, name)
        return Decision(True)

    def _declare_word(
        self, key: str, options: str, value: list[Piece], node: SimpleCommand
    ) -> Iterator[str]:
        """Declare a word, a name or ``name=value``, and yield the name."""
        text = text_of(value)
        found = _ASSIGNED.match(text)
        if found is not None:
            self._localize(key, found[1])
            self._assign_text(found[1], value, found.end(), adds=text[found.end() - 2] == "+")
            yield found[1]
        elif unread_piece(value) is not None:
            self._forget_all(node)
        elif _NAME.fullmatch(text):
            if key == "local" or (key in ("declare", "typeset") and self._locals):
                self._localize(key, text)
                self.layer.variables[text] = None
            if "A" in options or "a" in options:
                kind = "map" if "A" in options else "array"
                self.layer.variables[text] = Variable([], kind)
            yield text

    def _mark_declared(self, key: str, options: str, name: str) -> None:
        """Give a variable what options of its declaration say: exported, fixed, changed."""
        special = "".join(sorted(set(options) & set("iul"))) if key != "export" else ""
        if special:
            self._attributed[name] = special
            variable = self.layer.get(name)
            if variable is not None and not variable.unread:
                self.assign(name, variable.copy())
        variable = self.layer.own(name)
        fixed = key == "readonly" or "r" in options
        if variable is not None:
            variable.exported = variable.exported or key == "export" or "x" in options
            variable.fixed = variable.fixed or fixed
        elif fixed:
            variable = Variable([[]])
            variable.fixed = True
            self.layer.variables[name] = variable

    def _localize(self, key: str, name: str) -> None:
        if self._locals and key in ("local", "declare", "typeset"):
            self._locals[-1].setdefault(name, self.layer.get(name))

    def _assign_text(self, name: str, value: list[Piece], start: int, *, adds: bool) -> None:
        """Set a variable to a value without its first *start* characters."""
        kept: list[Piece] = []
        at = 0
        for piece in value:
            cut = max(start - at, 0)
            if cut < len(piece.text):
                exact = len(piece.text) == piece.end - piece.start
                begin = piece.start + cut if exact else piece.start
                kept.append(piece._replace(text=piece.text[cut:], start=begin))
            at += len(piece.text)
        before = self.layer.get(name)
        if adds and before is not None and before.kind == "text" and not before.unread:
            kept = [*before.values[0], *kept]
        self.assign(name, Variable([kept]))

    def _function(self, name: str, given: list[list[Piece]]) -> Decision:
        body, source = self._functions[name]
        self._calls += 1
        if self._calls > _DEEPEST_CALL:
            raise ShellTextError(f"`{short(name)}` calls itself too deeply", 0, 1)
        outer, self.source = self.source, source
        spread = any(value and value[0].spread for value in given)
        self.frames.append(ArgumentFrame(None if spread else given))
        self._locals.append({})
        self._returned.append([])
        parent, self.layer = self.layer, Layer(self.layer)
        status = self._execute(body)
        inner, self.layer = self.layer, parent
        if inner.ended in ("return", "break", "continue"):
            inner.ended = ""
        for restored, variable in self._locals.pop().items():
            inner.variables[restored] = variable
            for one in self._returned[-1]:
                _flattened(one, parent).variables[restored] = variable
        branches = [_flattened(one, parent) for one in self._returned.pop()]
        for branch in branches:
            branch.ended = ""
        if branches:
            self._merge([inner, *branches], UNDECIDED)
            status = UNDECIDED
        else:
            self.layer.adopt(inner)
        self.frames.pop()
        self.source = outer
        self._calls -= 1
        return status

    def _do_end(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        del node
        key = text_of(fields[0])
        status = text_of(fields[1]) if len(fields) > 1 else "0"
        if key in ("break", "continue"):
            if len(fields) > 1 and status != "1" and self._loose:
                self._loose = [True] * len(self._loose)
            if self._loose:
                self.layer.ended = key
            return Decision(True)
        self.layer.ended = key
        if len(fields) > 1 and not status.isdecimal():
            return UNDECIDED
        return Decision(status.strip("0") == "")

    def _do_false(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        del node, fields
        return Decision(False)

    def _do_echo(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        words = fields[1:]
        ends = True
        while words and re.fullmatch(r"-[neE]+", text_of(words[0])):
            ends = ends and "n" not in text_of(words[0])
            if "e" in text_of(words[0]):
                self._unknown_output("echo -e")
            words = words[1:]
        pieces = [
            piece
            for place, value in enumerate(words)
            for piece in ([Piece(" ", 0, 0), *value] if place else value)
        ]
        if node.redirections:
            for redirection in node.redirections:
                if redirection.operator in (">", ">>"):
                    target = self.value(redirection.target.parts)
                    whole = [*pieces, Piece("\n", 0, 0)]
                    if text_of(target).endswith((*_WRITTEN, *_CONFIGURATIONS)):
                        self._write(target, whole, adds=redirection.operator == ">>")
            return Decision(True)
        self._print([*pieces, Piece("\n", 0, 0)] if ends else pieces)
        return Decision(True)

    def _do_printf(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        words = fields[1:]
        target = ""
        if words and text_of(words[0]) == "-v" and len(words) > 1:
            target, words = text_of(words[1]), words[2:]
            if unread_piece(fields[2]) is not None or not _NAME.fullmatch(target):
                self._forget_all(node)
                return Decision(True)
        elif words and text_of(words[0]).startswith("-v"):
            self._forget_name(text_of(words[0])[2:], "is changed by `printf`")
            return Decision(True)
        if words and text_of(words[0]) == "--":
            words = words[1:]
        found = format_printf(words)
        if found is None:
            if target:
                self._forget_name(target, "is changed by `printf`")
            self._unknown_output("printf")
            return Decision(True)
        self.count(len(found))
        if target:
            self.assign(target, Variable([list(found)]))
        elif not node.redirections:
            self._print(found)
        return Decision(True)

    def _do_seq(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        unread = next((piece for value in fields[1:] if (piece := unread_piece(value))), None)
        if unread is not None:
            self._print([unread])
            return Decision(True)
        found = sequence_of_numbers([text_of(value) for value in fields[1:]])
        if found is None:
            self._unknown_output("seq")
            return Decision(True)
        self.count(len(found))
        place = self.source.place(node.start, node.end)
        self._print([Piece(f"{text}\n", *place) for text in found])
        return Decision(True)

    def _do_expr(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        unread = next((piece for value in fields[1:] if (piece := unread_piece(value))), None)
        texts = [text_of(value) for value in fields[1:]]
        place = self.source.place(node.start, node.end)
        if unread is not None:
            self._print([unread])
            return UNDECIDED
        if not all(re.fullmatch(r"\d{1,18}|[-+*/%()]", text) for text in texts):
            self._unknown_output("expr")
            return UNDECIDED
        try:
            found = self.evaluate([Piece(" ".join(texts), *place)])
        except ArithmeticTextError:
            self._unknown_output("expr")
            return UNDECIDED
        why = next(filter(None, (assumption_of(value) for value in fields[1:])), "")
        self._print([Piece(f"{found}\n", *place, "", why)])
        return Decision(bool(found))

    def _do_path(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        key = text_of(fields[0])
        words = [value for value in fields[1:] if text_of(value) != "--"]
        plain = bool(words) and not any(unread_piece(value) for value in words)
        if not plain or text_of(words[0]).startswith("-") or len(words) > 2:
            unread = next((piece for one in words if (piece := unread_piece(one))), None)
            if unread is not None and key == "basename":
                self._print([unread])
            else:
                self._unknown_output(key)
            return Decision(True)
        text = text_of(words[0]).rstrip("/") or "/"
        head, slash, tail = text.rpartition("/")
        found = (tail or "/") if key == "basename" else (head or "/") if slash else "."
        if key == "basename" and len(words) == 2 and found != text_of(words[1]):
            found = found.removesuffix(text_of(words[1]))
        place = self.source.place(node.start, node.end)
        self._print([Piece(f"{found}\n", *place, "", assumption_of(words[0]))])
        return Decision(True)

    def _do_cd(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        del node
        words = [text_of(value) for value in fields[1:] if text_of(value) not in ("--", "-P")]
        path = words[0].rstrip("/") if words else "~"
        known = not any(unread_piece(value) for value in fields[1:])
        self._folder = self._relative(path) if known and words else "?"
        if path in (".", "./"):
            self._folder = ""
        return Decision(True)

    def _do_pwd(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        del fields
        place = self.source.place(node.start, node.end)
        if self._output is not None and not self._started_here():
            self._unknown_output("pwd")
        else:
            self._print([Piece(f"{self._folder or '.'}\n", *place)])
        return Decision(True)

    def _started_here(self) -> bool:
        """Return whether the current folder is known relative to this file."""
        return not self._folder.startswith(("?", "/", "~"))

    def _do_set(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        del node
        words = fields[1:]
        if words and text_of(words[0]) == "--":
            self.frames[-1] = ArgumentFrame(words[1:])
        return Decision(True)

    def _do_shift(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        given = self.frames[-1].arguments
        text = text_of(fields[1]) if len(fields) > 1 else "1"
        if given is None or not text.isdecimal():
            return UNDECIDED
        del node
        if int(text) > len(given):
            return Decision(False)
        self.frames[-1] = ArgumentFrame(given[int(text) :])
        return Decision(True)

    def _do_unset(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        for value in fields[1:]:
            text = text_of(value)
            if unread_piece(value) is not None:
                self._forget_all(node)
            elif "[" in text:
                self._forget_name(text.partition("[")[0], "is changed by `unset`")
            elif not text.startswith("-"):
                variable = self.layer.get(text)
                if variable is not None and variable.fixed:
                    continue
                self.layer.variables[text] = None
        return Decision(True)

    def _do_let(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        status = Decision(True)
        for value in fields[1:]:
            unread = unread_piece(value)
            text = text_of(value)
            if unread is not None:
                if not assigned_names(text):
                    self._forget_all(node)
                for name in assigned_names(text):
                    self._forget_name(name, "is changed by `let`")
                continue
            status = self._arithmetic_command(ArithmeticCommand(text, node.start, node.end))
        return status

    def _do_eval(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        words = fields[1:]
        if not words:
            return Decision(True)
        pieces = [
            piece
            for place, value in enumerate(words)
            for piece in ([Piece(" ", value[0].start, value[0].start), *value] if place else value)
            if value
        ]
        if pieces and pieces[0].unread:
            self._forget_all(node)
            return UNDECIDED
        return self._run_text(pieces)

    def _do_trap(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        del node
        for value in fields[1:2]:
            for found in _ASSIGNED.finditer(text_of(value)):
                self._forget_name(found[1], "is changed by `trap`")
        return Decision(True)

    def _do_source(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        if len(fields) < 2:
            return Decision(False)
        path = text_of(fields[1])
        if path.endswith(_ENVIRONMENTS):
            return Decision(True)
        text: ScriptSource | None = None
        if unread_piece(fields[1]) is None:
            if path in self._files:
                text = self._script_text(path, fields[1])
            else:
                found = self._neighbor(self._relative(path))
                place = self.source.place(node.start, node.end)
                text = ScriptSource(found, place=place) if found is not None else None
        if text is None:
            self._forget_all(node)
            return Decision(True)
        self._returned.append([])
        status = self._run_source(text, fields[2:] or None)
        returned = self._returned.pop()
        if self.layer.ended == "return":
            self.layer.ended = ""
        if returned:
            for branch in returned:
                for name in branch.variables:
                    self.layer.variables[name] = self._loop_variable(name)
        return status

    def _do_wrapper(self, node: SimpleCommand, fields: list[list[Piece]]) -> Decision:
        environment: list[tuple[str, list[Piece]]] = []
        words = fields[1:]
        while words and (text := text_of(words[0])):
            found = _ASSIGNED.match(text)
            if text.startswith("-") and text_of(fields[0]) != "env":
                break
            if found is None and not text.startswith("-"):
                break
            if found is not None:
                first = words[0][0]
                value = [first._replace(text=first.text[found.end() :]), *words[0][1:]]
                environment.append((found[1], value))
            words = words[1:]
        if not words:
            return Decision(True)
        environment += [(one.name, self.value(one.word.parts)) for one in node.assignments]
        return self._call_with(node, words, environment)


_NOT_PRINTED = "what is printed is not known"
_HANDLED = {
    **dict.fromkeys(("exit", "return", "break", "continue"), "end"),
    **dict.fromkeys(("basename", "dirname"), "path"),
    **dict.fromkeys(("source", "."), "source"),
    **dict.fromkeys(("exec", "nohup", "time", "env"), "wrapper"),
    **dict.fromkeys(("cd", "pushd"), "cd"),
    **dict.fromkeys(("trap", "alias"), "trap"),
    **{key: key for key in ("echo", "printf", "seq", "expr", "pwd", "set", "shift", "unset")},
    **{key: key for key in ("let", "eval", "false")},
}


def _whole_text(file: Variable) -> ShellField:
    """Return the text of a file that the script writes as one word."""
    found = field_of(file.values[0] if file.values else [])
    return found._replace(unread=file.unread or found.unread)


def _started_script(fields: Sequence[ShellValue]) -> int | None:
    """Return the index of the script that a command starts, None if it starts none."""
    texts = [text_of(value) for value in fields]
    key = texts[0].rpartition("/")[2]
    if key.endswith(_WRITTEN):
        return 0
    places = [at for at in range(1, len(texts)) if not texts[at].startswith("-")]
    if key in _READERS:
        written = (at for at in places if texts[at].endswith(_WRITTEN))
        return next(written, places[0] if places else None)
    for at in places:
        ahead = (texts[before] for before in range(at - 1, -1, -1) if texts[before][:1] != "-")
        if next(ahead, "").rpartition("/")[2] in _SHELLS:
            return at
        if key in _STARTERS and texts[at].endswith(_WRITTEN):
            return at
    return None


def _exports(fields: Sequence[ShellValue]) -> list[tuple[str, list[Piece]]]:
    """Return the variables in Slurm's ``--export=ALL,TP=4``."""
    found: list[tuple[str, list[Piece]]] = []
    for value in fields:
        text = text_of(value)
        if not text.startswith("--export="):
            continue
        start, end, unread = value[0].start, value[-1].end, unread_piece(value)
        for item in text.removeprefix("--export=").split(","):
            name, equals, own = item.partition("=")
            if equals and _NAME.fullmatch(name):
                why = unread.unread if unread is not None else ""
                found.append((name, [Piece(own, start, end, why)]))
    return found


def _places_of(path: str) -> Sequence[str]:
    """Return possible paths of a script in this folder: the path, with leading parts removed.

    >>> _places_of("$HOME/llama/run.sh")
    ['llama/run.sh', 'run.sh']
    """
    parts = path.split("/")
    if ".." in parts:
        return [path]
    unread = [at for at, part in enumerate(parts) if _UNREAD.search(part)]
    first = unread[-1] + 1 if unread else 0
    return ["/".join(parts[at:]) for at in range(first, len(parts)) if parts[at]]


def _assumed_values(
    values: Sequence[ShellValue], why: str, kept: Collection[int] = ()
) -> list[list[Piece]]:
    """Return values marked with an assumption; pieces whose ids are *kept* are not marked."""
    return [
        [
            piece
            if piece.unread or piece.assumption or id(piece) in kept
            else piece._replace(assumption=why)
            for piece in value or [Piece("", 0, 0)]
        ]
        for value in values
    ]


def _flattened(layer: Layer, base: Layer) -> Layer:
    """Return one layer over *base*, with all layers between merged."""
    chain: list[Layer] = []
    at: Layer | None = layer
    while at is not None and at is not base:
        chain.append(at)
        at = at.parent
    found = Layer(base)
    for one in reversed(chain):
        found.variables.update(one.variables)
        found.commands += one.commands
    return found


def _subject(token: ShellToken) -> str:
    if len(token.parts) != 1 or token.parts[0].kind != "variable":
        return ""
    found = re.match(r"[A-Za-z_]\w*|\d+", token.parts[0].text)
    return found[0] if found else ""

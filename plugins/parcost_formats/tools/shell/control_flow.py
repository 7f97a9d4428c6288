"""Chains, tests, loops, subshells and pipelines of a shell script."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from attrs import Factory, define

from parcost_formats.tools.shell.arithmetic import ArithmeticTextError
from parcost_formats.tools.shell.assignments import FILE_PREFIX, mark_assumptions
from parcost_formats.tools.shell.conditions import (
    UNDECIDED,
    Operand,
    combine,
    decide,
    emptiness,
    evaluate_test,
    negate,
    options_for,
)
from parcost_formats.tools.shell.file_changes import may_write
from parcost_formats.tools.shell.filters import filter_text
from parcost_formats.tools.shell.layers import IN_IF, Layer, ScriptCommand, merge
from parcost_formats.tools.shell.nodes import (
    ArithmeticCommand,
    CaseCommand,
    CommandChain,
    CommandGroup,
    CountingLoop,
    FunctionDefinition,
    IfCommand,
    LoopCommand,
    ShellNode,
    ShellPipeline,
    ShellToken,
    SimpleCommand,
    TestCommand,
    WordPart,
)
from parcost_formats.tools.shell.patterns import ShellPatternError, matches
from parcost_formats.tools.shell.sources import ScriptSource, short
from parcost_formats.tools.shell.values import (
    ARGUMENTS,
    Decision,
    Piece,
    ShellField,
    Variable,
    assumption_of,
    field_of,
    text_of,
    unread_piece,
)
from parcost_formats.tools.shell.words import ShellTextError
from parcost_formats.tools.shell.written_files import FileWriter

_OF_ARGUMENTS = re.compile(r"\$\{?#\}?(?!\w)|\$\{?1\b|\bgetopts?\b")
_MOST_ROUNDS = 1000
_MOST_PASSES = 5
_DEEPEST = 60
_NOT_PRINTED = "the printed text is unknown"
IN_LOOP = "is set inside a loop, which parcost does not evaluate"


@define(slots=False, eq=False)
class ControlFlow(FileWriter):
    """Follows the commands of a script in order; simple commands are left to a subclass."""

    _functions: dict[str, tuple[ShellNode, ScriptSource]] = Factory(dict)
    _exited: list[ScriptCommand] = Factory(list)
    _end: Piece | None = None  # the last ``exit`` outside of branches
    _returned: list[list[Layer]] = Factory(list)
    _loose: list[bool] = Factory(list)
    _output: list[Piece] | None = None
    _nesting: int = 0
    _last_folder: str = "?"  # of `cd -`
    _moved: str = ""  # the last command that changed the folder
    _folders: list[str] = Factory(list)  # of `popd`
    _assumed: dict[str, ShellField] = Factory(dict)  # by the assumption

    @abstractmethod
    def _simple(self, node: SimpleCommand) -> Decision:
        """Read a command without commands inside."""

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
            raise ShellTextError("commands in this file are nested too deeply", 0, 1)
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
                status = combine([status, following], is_and=wanted)
            elif status.value != wanted:
                self._record_decision(status, command)
            else:
                self._record_decision(status, command)
                following = self._follow(status, partial(self._execute, command))
                why = following.assumption or status.assumption
                status = following._replace(assumption=why)
        return status

    def _follow(self, decision: Decision, part: Callable[[], Decision]) -> Decision:
        """Read commands that a test selects.

        If the script exits only because an environment variable is not set, both outcomes are kept.
        """
        before = self._context
        self._context = before or decision.assumption
        if decision.missing:
            layer, status = self._branch(part)
            kept = [Layer(self.layer)] if layer.ended == "exit" else []
            self._merge([layer, *kept], decision)
        else:
            status = part()
        self._context = before
        return status

    def _branch(self, part: Callable[[], Decision]) -> tuple[Layer, Decision]:
        """Read commands in a new layer; return the layer and their exit status."""
        outer, self.layer = self.layer, Layer(self.layer)
        folder = self._folder
        printed_before = len(self._output) if self._output is not None else 0
        status = part()
        branch, self.layer = self.layer, outer
        branch.folder, self._folder = self._folder, folder
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
        folders = {self._folder if one.folder is None else one.folder for one in live}
        if live:
            self._folder = folders.pop() if len(folders) == 1 else "?"
        if not live:
            self.layer.ended = branches[0].ended
        elif len(live) == 1:
            self.layer.adopt(live[0])
        else:
            self.count(merge(self.layer, live, decision, why))

    def _choose_branch(self, branches: Sequence[tuple[Decision, Sequence[ShellNode]]]) -> Decision:
        """Read the branch that the tests select, or all possible ones if they are undecided."""
        possible: list[Layer] = []
        undecided: list[Decision] = []
        for decision, body in branches:
            if decision.value is not None and body:
                self._record_decision(decision, body[0])
            if decision.value is False:
                continue
            if decision.value and not undecided:
                return self._follow(decision, partial(self.run, body))
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
        joined = combine(undecided, is_and=True)
        if possible[-1].ended == "exit" and not any(one.empty for one in undecided):
            answers = tuple(one for one in joined.answers if not one.endswith("="))
            joined = joined._replace(answers=answers or joined.answers)
        self._merge(possible, joined)
        return joined._replace(value=None)

    def _record_decision(self, decision: Decision, node: ShellNode) -> None:
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
        """Return whether a branch only sets the variable that its test found empty."""
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
                variable.values = mark_assumptions(variable.values, why)
        self.layer.adopt(branch)
        self._folder = self._folder if branch.folder is None else branch.folder

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
        return self._choose_branch(branches)

    def _case(self, node: CaseCommand) -> Decision:
        word = self.value(node.word.parts)
        if any(end == ";;&" for _, _, end in node.branches):
            return self._read_open_loop([], [one for _, body, _ in node.branches for one in body])
        name = _subject(node.word)
        operand = Operand(word, None, name)
        branches: list[tuple[Decision, Sequence[ShellNode]]] = []
        for place, (patterns, _, _) in enumerate(node.branches):
            body = [*node.branches[place][1]]
            following = place
            while node.branches[following][2] == ";&" and following + 1 < len(node.branches):
                following += 1
                body += node.branches[following][1]
            decision = combine([self._matches(operand, one) for one in patterns], is_and=False)
            branches.append((decision, body))
            if decision.value:
                break
        return self._choose_branch(branches)

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
            status = self._read_open_loop([node.name], bodies)
            if may_write(self.source.text[node.start : node.end], node.name):
                for value in values:
                    self._mark_on_disk(text_of(value), node.start, node.end)
            return status
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
            self._read_open_loop([*self.layer.variables], body, step)
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
            return found if wanted else negate(found)

        return self._rounds(test, node.body)

    def _rounds(
        self,
        test: Callable[[], Decision],
        body: Sequence[ShellNode],
        step: Callable[[], Decision] | None = None,
    ) -> Decision:
        """Follow a loop round by round, while the result of its test is known."""
        first = test()
        if first.value is False:
            return Decision(True)
        outer, self.layer = self.layer, Layer(self.layer)
        if first.value is None:
            self.layer = outer
            return self._read_open_loop([], body, step)
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

    def _read_open_loop(
        self,
        names: Sequence[str],
        body: Sequence[ShellNode],
        step: Callable[[], Decision] | None = None,
    ) -> Decision:
        """Read a loop of unknown rounds: its variables become unknown."""
        layer, written = self._written_names(names, body, step)
        self._folder = self._folder if layer.folder == self._folder else "?"
        for name in written:
            self.layer.variables[name] = self._loop_variable(name)
        decision = Decision(None, "", (), "inside a loop, which parcost does not evaluate")
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
            variable.values = mark_assumptions(variable.values, why)
        decision = Decision(None, "", (), "in a loop over arguments")
        self.layer.commands += [
            one._replace(decision=one.decision or decision) for one in layer.commands
        ]
        return UNDECIDED

    # Shells of their own

    def _subshell(self, part: Callable[[], Decision]) -> Decision:
        """Read commands in a subshell, whose variables are discarded."""
        outer, self.layer = self.layer, Layer(self.layer)
        folders = self._folder, self._last_folder, self._folders
        status = part()
        inner, self.layer = self.layer, outer
        self._folder, self._last_folder, self._folders = folders
        self.layer.commands += inner.commands
        for name, variable in inner.variables.items():
            if name.startswith(FILE_PREFIX):
                self.layer.variables[name] = variable
        return status

    def _pipeline(self, node: ShellPipeline) -> Decision:
        if len(node.commands) == 1:
            return negate(self._execute(node.commands[0]))
        output = self._output
        first, *rest = node.commands
        filters = [self._filter_words(one) for one in rest] if output is not None else [None]
        self._output = [] if all(filters) else None
        self._subshell(partial(self._execute, first))
        printed, self._output = self._output, output
        if printed is not None and self._print_filter_output(printed, list(filter(None, filters))):
            return UNDECIDED
        self._output = None
        for command in rest[:-1]:
            self._subshell(partial(self._execute, command))
        self._output = output
        last = node.commands[-1]
        status = self._subshell(lambda: self._execute(last))
        return negate(status) if node.negated else status

    def _filter_words(self, node: ShellNode) -> Sequence[str] | None:
        """Return the words of a command that may read the text of another; None for others."""
        if not isinstance(node, SimpleCommand) or node.assignments or node.redirections:
            return None
        words = [one for one in node.words if isinstance(one, ShellToken)]
        fields = [value for one in words for value in self.fields(one)]
        if not fields or any(unread_piece(value) for value in fields):
            return None
        texts = [text_of(value) for value in fields]
        return texts if filter_text(texts, "") is not None else None

    def _print_filter_output(
        self, pieces: Sequence[Piece], filters: Sequence[Sequence[str]]
    ) -> bool:
        """Print *pieces* as changed by *filters*; return whether all filters are supported."""
        unread = unread_piece(pieces)
        if unread is not None:
            self._print([unread])
            return True
        text: str | None = text_of(pieces)
        for words in filters:
            text = filter_text(words, text) if text is not None else None
        if text is None:
            return False
        place = (pieces[0].start, pieces[0].end) if pieces else (0, 0)
        self._print([Piece(text, *place, "", assumption_of(pieces))])
        return True

    def capture(self, part: WordPart) -> Sequence[Piece]:
        """Return the output of the commands in ``$(...)``, as far as it is constant."""
        shown = self.source.text[part.start : part.end]
        outer = self._output
        self._output = []
        commands = part.commands
        if not commands and part.text.startswith("`") and "\\" in part.text:
            self._unknown_output("a command")
        self.nest(lambda: self._subshell(lambda: self.run(commands)))
        found, self._output = self._output, outer
        while found and not found[-1].unread and found[-1].text.endswith("\n"):
            last = found.pop()
            kept = last.text.rstrip("\n")
            if kept:
                found.append(last._replace(text=kept))
        if any(piece.unread == _NOT_PRINTED for piece in found):
            why = f"`{short(shown)}` is a command, which parcost does not run"
            return [Piece(shown, *self.source.place(part.start, part.end), why)]
        return found

    def _print(self, pieces: Sequence[Piece]) -> None:
        if self._output is not None:
            self.count(len(pieces), sum(len(piece.text) for piece in pieces))
            self._output += pieces

    def _unknown_output(self, what: str) -> None:
        if self._output is not None:
            self._output.append(Piece(what, 0, 0, _NOT_PRINTED))


def _subject(token: ShellToken) -> str:
    if len(token.parts) != 1 or token.parts[0].kind != "variable":
        return ""
    found = re.match(r"[A-Za-z_]\w*|\d+", token.parts[0].text)
    return found[0] if found else ""

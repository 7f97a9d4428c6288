"""Changes to the physics that no fast test notices.

    python benchmarks/mutants.py                     # 100 mutants of seed 1, two at a time
    python benchmarks/mutants.py --count 20 --seed 7
    python benchmarks/mutants.py --list              # draw, and run nothing
    python benchmarks/mutants.py --quick --count 9999 --under memory --tests tests/memory
                                                     # all of a subject, by its own tests

Draws small changes of the code in `plugins/` before any is looked at: an operator, a number, a
comparison, a minimum for a maximum; in code, and in the texts of formulas. The fast tests that
run its line run until one fails, in a fork of a process that has collected them.
A mutant that passes them runs all fast tests once more,
in a copy of the tracked files with the file changed; if all pass it survives.

Prints one line a mutant, and ends with the survivors. Exit code 1 if more survive than `--allow`.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import os
import pickle
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from pkgutil import walk_packages
from queue import Queue
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol
from coverage import Coverage, CoverageData

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path("plugins/parcost_plugins")
WITHOUT_PHYSICS = {"vocabulary"}  # declarations
TEXTS = {"text", "source", "message", "help", "name", "title", "doc", "note", "notes", "subject"}
# Arguments that say what the code believes, and compute nothing.
ASSERTIONS = {"strict"}
TIME_LIMIT = 3600.0  # seconds after which a run that only waits counts as noticed
OPTIONS = ("-q", "--no-header", "--tb=no", "-p", "no:cacheprovider")
COVERED = "covered"

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
#: What tells the text of a formula from other texts: an operator, a bracket or a number.
FORMULA = re.compile(r" [-+/*<>?] | (?:<=|>=|==|!=) |\^|\(|\d")
IN_TEXTS = {
    " + ": " - ",
    " - ": " + ",
    " / ": " * ",
    "^": " * ",
    " < ": " <= ",
    " <= ": " < ",
    " > ": " >= ",
    " >= ": " > ",
    " == ": " != ",
    "max(": "min(",
    "min(": "max(",
    "ceil(": "floor(",
    "floor(": "ceil(",
}
PIECES = re.compile("|".join([*map(re.escape, IN_TEXTS), r"(?<![\w.\[])\d+(?:\.\d+)?(?![\w.])"]))
NAMES = {"minimum": "maximum", "maximum": "minimum", "ceil": "floor", "floor": "ceil"}


class Mutant(NamedTuple):
    """A file, where it is changed, and the new text of that place."""

    path: Path
    line: int
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before} -> {self.after}"

    def changed(self, text: str) -> str:
        """Return the *text* of its file with the change, every line where it was."""
        data = text.encode()
        lines = "\n" * self.before.count("\n")
        after = f"({self.after}{lines})"
        return (data[: self.start] + after.encode() + data[self.end :]).decode()


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every change of *path* that is known how to make."""
    text = (ROOT / path).read_text(encoding="utf-8")
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        return begin, starts[node.end_lineno - 1] + node.end_col_offset

    def changed(node: ast.expr, new: ast.expr) -> Mutant:
        begin, end = place(node)
        return Mutant(path, node.lineno, begin, end, data[begin:end].decode(), ast.unparse(new))

    module = ast.parse(text)
    for statement in module.body:  # tables of texts
        if isinstance(statement, ast.Assign):
            for node in ast.walk(statement.value):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from (changed(node, new) for new in changes(node))
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef):
            for node in expressions(function):
                for new in changes(node):
                    yield changed(node, new)


def expressions(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield the expressions of a function's body that compute something."""
    documented = ast.get_docstring(function) is not None
    waiting: list[ast.AST] = list(function.body[documented:])
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.JoinedStr | ast.Raise | ast.Assert):
            continue
        if isinstance(node, ast.AnnAssign):
            waiting += [node.value] if node.value else []
            continue
        if isinstance(node, ast.keyword) and node.arg in TEXTS | ASSERTIONS:
            continue
        if isinstance(node, ast.expr):
            yield node
        if isinstance(node, ast.Subscript):  # an index out of range is noticed by anything
            waiting.append(node.value)
            continue
        waiting += ast.iter_child_nodes(node)


def changes(node: ast.expr) -> Iterator[ast.expr]:
    """Yield replacements of *node*."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            return
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        if type(node.ops[0]) in COMPARISONS:
            new = COMPARISONS[type(node.ops[0])]()
            yield ast.Compare(node.left, [new], node.comparators)
    elif isinstance(node, ast.BoolOp):
        op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(op, node.values)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield ast.Constant(node.value + 1)
        elif isinstance(node.value, str):
            yield from map(ast.Constant, texts(node.value))
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield ast.Name(f"__import__('parcost').numeric.{NAMES[node.id]}")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand


def texts(text: str) -> Iterator[str]:
    """Yield replacements of the text of a formula; nothing for any other text.

    >>> list(texts("2 (P - 1) n / B, by a ring"))[:2]
    ['3 (P - 1) n / B, by a ring', '2 (P + 1) n / B, by a ring']
    """
    expression, comma, remark = text.partition(", ")
    if expression.count("(") != expression.count(")"):  # the comma stands between arguments
        expression, comma, remark = text, "", ""
    if not FORMULA.search(expression):
        return
    from parcost import FormulaError, symbols_of

    try:
        symbols = symbols_of(expression)
    except FormulaError:
        return
    if not symbols:
        return
    for match in PIECES.finditer(expression):
        piece = match[0]
        new = str(float(piece) + 1).removesuffix(".0") if piece[0].isdigit() else IN_TEXTS[piece]
        yield f"{expression[: match.start()]}{new}{expression[match.end() :]}{comma}{remark}"


def draw(count: int, seed: int, under: str = "") -> list[Mutant]:
    """Return *count* mutants, or as many as there are, the same for the same seed and code."""
    files = sorted(
        path.relative_to(ROOT)
        for path in (ROOT / SOURCE / under).rglob("*.py")
        if not WITHOUT_PHYSICS & set(path.relative_to(ROOT / SOURCE).parts)
    )
    every = [mutant for path in files for mutant in mutants(path)]
    return random.Random(seed).sample(every, min(count, len(every)))


class Tree:
    """A copy of the tracked files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True
        ).stdout.decode()
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    @property
    def path(self) -> str:
        """The value of PYTHONPATH with which its packages are imported."""
        return os.pathsep.join(
            str(self.folder / r) for r in ("core", "grammar", "plugins", "specs")
        )

    def survives(self, mutant: Mutant, failed: Sequence[str]) -> bool:
        """Return whether every fast test passes in a new process, with the file changed.

        Those that *failed* without a mutant are left out.
        """
        path = self.folder / mutant.path
        before = path.read_bytes()
        try:
            path.write_text(mutant.changed(before.decode()), encoding="utf-8")
            command = [sys.executable, "-m", "pytest", *OPTIONS, "-x", "-m", "not slow"]
            command += [f"--deselect={name}" for name in failed]
            return not subprocess.run(
                command,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": self.path, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                check=False,
            ).returncode
        finally:
            path.write_bytes(before)


class Order(NamedTuple):
    """A mutant, the tests to run until one fails, and the processor seconds that they may take."""

    mutant: Mutant
    tests: Sequence[str]
    limit: int


class Worker:
    """A process that has collected the fast tests, and forks for each mutant.

    A fork has the functions of one file replaced by those of the mutant, and imports and collects
    nothing. Functions are found by file and line among all objects.
    """

    def __init__(self, tree: Tree, tests: Sequence[str] = ()) -> None:
        context = get_context("spawn")
        self._connection, other = context.Pipe()
        process = context.Process(target=_work, args=(tree, tests, other), daemon=True)
        process.start()
        other.close()

    def ask(self, order: Order | None) -> Any:
        """Return the answer of a fork to *order*; for None, how long each test takes."""
        self._connection.send(order)
        return self._connection.recv()


def _work(tree: Tree, tests: Sequence[str], connection: Connection[Any, Order | None]) -> None:
    os.chdir(tree.folder)
    os.environ["PYTHONPATH"] = tree.path
    sys.path[:0] = tree.path.split(os.pathsep)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        sys.stdout = sys.stderr = nowhere
        options = [*OPTIONS, "-p", "no:xdist", "-p", "no:cov", "-m", "not slow"]
        pytest.main([*options, *tests], plugins=[_Server(connection)])


class _Server:
    """A plugin of pytest: answers orders where the collected tests would run."""

    def __init__(self, connection: Connection[Any, Order | None]) -> None:
        self._connection = connection

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        import parcost_plugins

        for module in walk_packages(parcost_plugins.__path__, "parcost_plugins."):
            importlib.import_module(module.name)
        gc.unfreeze()
        functions: dict[Any, list[FunctionType]] = {}
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                functions.setdefault(_place(one.__code__), []).append(one)
        gc.freeze()
        items = {item.nodeid: item for item in session.items}
        while True:
            try:
                order = self._connection.recv()
            except EOFError:
                return True
            if order is None:
                self._connection.send(_forked(lambda: _durations(items), None))
            else:
                self._connection.send(
                    _forked(lambda o=order: _test(o, items, functions), order.limit)
                )


def _forked(answer: Callable[[], Any], limit: int | None) -> Any:
    """Return the result of *answer* in a fork; None where it takes more than *limit* seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.setsid()
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        with os.fdopen(writing, "wb") as file:
            pickle.dump(answer(), file)
        os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], TIME_LIMIT)
    with os.fdopen(reading, "rb") as file:
        data = file.read() if ready else b""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return pickle.loads(data) if data else None


def _durations(items: Mapping[str, pytest.Item]) -> tuple[dict[str, float], list[str]]:
    """Run every test; return how long each takes, and those that fail.

    The file `COVERED` says which lines each of them runs.
    """
    taken, failed = {}, []
    coverage = Coverage(source=["plugins/parcost_plugins"], data_file=COVERED, config_file=False)
    coverage.start()
    following = [*list(items.values())[1:], None]
    for (name, item), after in zip(items.items(), following, strict=True):
        coverage.switch_context(name)
        start = time.process_time()
        if not _passes(item, after):
            failed.append(name)
        taken[name] = time.process_time() - start
    coverage.stop()
    coverage.save()
    return taken, failed


def _test(
    order: Order, items: Mapping[str, pytest.Item], functions: Mapping[Any, list[FunctionType]]
) -> str:
    """Return the first test that fails with the mutant, or nothing."""
    file = Path.cwd() / order.mutant.path
    text = order.mutant.changed(file.read_text(encoding="utf-8"))
    for code in _codes(compile(text, str(file), "exec")):
        for function in functions.get(_place(code), ()):
            function.__code__ = code
    chosen = [items[name] for name in order.tests]
    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
        if not _passes(item, following):
            return item.nodeid
    return ""


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def tests_of(
    mutant: Mutant, lines: Mapping[int, Sequence[str]], taken: Mapping[str, float]
) -> list[str]:
    """Return the tests that run the line of *mutant*, those of the same subject first.

    A line of a table of constants runs with the nearest line before it that runs.
    """
    subject = set(mutant.path.relative_to(SOURCE).with_suffix("").parts)
    names: list[str] = []
    for line in range(mutant.line, 0, -1):
        if names := [name for name in lines.get(line, ()) if name in taken]:
            break
    return sorted(names, key=lambda n: (subject.isdisjoint(n.split("/")[:-1]), taken[n], n))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--allow", type=int, default=2, help="survivors that are no failure")
    parser.add_argument("--list", action="store_true", help="draw, and run nothing")
    parser.add_argument("--under", default="", help="only files below that folder of the plugins")
    parser.add_argument("--tests", nargs="+", default=[], help="files or folders, in place of all")
    parser.add_argument("--quick", action="store_true", help="believe what forks say of survivors")
    options = parser.parse_args()
    drawn = draw(options.count, options.seed, options.under)
    if options.list:
        print(*drawn, sep="\n")
        return 0
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        tree, other = Tree(Path(folder, "forks")), Tree(Path(folder, "survivors"))
        workers: Queue[Worker] = Queue()
        first = Worker(tree, options.tests)
        taken, failed = first.ask(None)
        for name in failed:
            print(f"left out, as it fails without a mutant: {name}")
            del taken[name]
        limit = 60 + round(2 * sum(taken.values()))
        workers.put(first)
        for _ in range(1, options.jobs):
            workers.put(Worker(tree, options.tests))
        data = CoverageData(str(tree.folder / COVERED))
        data.read()
        covered = {
            path: data.contexts_by_lineno(str(tree.folder / path))
            for path in {m.path for m in drawn}
        }

        def run(mutant: Mutant) -> tuple[Mutant, str | None]:
            worker = workers.get()
            try:
                tests = tests_of(mutant, covered[mutant.path], taken)
                return mutant, worker.ask(Order(mutant, tests, limit)) if tests else ""
            finally:
                workers.put(worker)

        with ThreadPoolExecutor(options.jobs) as pool:
            for mutant, by in pool.map(run, drawn):
                # Commands that tests start in processes of their own import the file.
                survives = by == "" and (options.quick or other.survives(mutant, failed))
                reason = "no end" if by is None else by
                print("survived" if survives else "noticed ", mutant, reason, flush=True)
                if survives:
                    survivors.append(mutant)
    print(f"\n{len(survivors)} of {len(drawn)} mutants of seed {options.seed} survive")
    print(*survivors, sep="\n")
    return int(len(survivors) > options.allow)


if __name__ == "__main__":
    sys.exit(main())

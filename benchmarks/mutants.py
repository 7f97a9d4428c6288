"""Changes to the physics that no fast test notices.

    python benchmarks/mutants.py                     # 100 mutants of seed 1, two at a time
    python benchmarks/mutants.py --count 20 --seed 7
    python benchmarks/mutants.py --list              # draw, and run nothing

Draws small changes of the code in `plugins/` before any is looked at: an operator, a number, a
comparison, a minimum for a maximum. Each is put into a copy of the tracked files, where the fast
tests run until one fails: first those that run its line, then all. A mutant that passes every
test survives, and is printed with its line. pytest-cov says which tests run a line.

Prints one line a mutant, and ends with the survivors. Exit code 1 if more survive than `--allow`.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path("plugins/parcost_plugins")
# Declarations, texts and formats have no physics in them.
WITHOUT_PHYSICS = {"vocabulary", "exporters", "executors", "calibration"}
TEXTS = {"text", "source", "message", "help", "name", "title", "doc", "note", "notes", "subject"}
MOST_NAMES = 300  # tests that are run by name, and not by file
TIME_LIMIT = 3600.0  # seconds after which a run that only waits counts as noticed

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
        return Mutant(
            path, node.lineno, begin, end, data[begin:end].decode(), f"({ast.unparse(new)})"
        )

    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            for node in expressions(function):
                for new in changes(node):
                    yield changed(node, new)


def expressions(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield the expressions of a function's body that compute something."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.JoinedStr | ast.Raise | ast.Assert):
            continue
        if isinstance(node, ast.AnnAssign):
            waiting += [node.value] if node.value else []
            continue
        if isinstance(node, ast.keyword) and node.arg in TEXTS:
            continue
        if isinstance(node, ast.expr):
            yield node
        if isinstance(node, ast.Subscript):  # an index out of range is noticed by anything
            waiting.append(node.value)
            continue
        waiting += ast.iter_child_nodes(node)


def changes(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what may stand for *node*."""
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
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield ast.Name(f"__import__('parcost').numeric.{NAMES[node.id]}")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand


def draw(count: int, seed: int) -> list[Mutant]:
    """Return *count* mutants, the same for the same seed and code."""
    files = sorted(
        path.relative_to(ROOT)
        for path in (ROOT / SOURCE).rglob("*.py")
        if not WITHOUT_PHYSICS & set(path.relative_to(ROOT / SOURCE).parts)
    )
    every = [mutant for path in files for mutant in mutants(path)]
    return random.Random(seed).sample(every, count)


def _limited(seconds: int | None) -> list[str]:
    """Return the start of a command line that may take *seconds* of processor time."""
    if seconds is None:
        return []
    return ["bash", "-c", f'ulimit -t {seconds}; exec "$@"', "bash"]


class Coverage:
    """Which fast tests run a line, by one run of all of them."""

    def __init__(self, tree: Tree) -> None:
        """Run the fast tests of *tree*, which all have to pass.

        Raises:
            RuntimeError: One fails without any mutant.
        """
        data = tree.folder / ".coverage"
        options = ["--cov=plugins/parcost_plugins", "--cov-context=test", "--cov-report="]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        if failed := tree.run(options, COVERAGE_FILE=str(data)):
            raise RuntimeError(f"the fast tests fail without a mutant: {failed}")
        #: Seconds of processor time in which all fast tests end, with a mutant or without.
        self.limit = 60 + round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
        self._data = CoverageData(str(data))
        self._data.read()
        self._folder = tree.folder

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the line of *mutant*, or their files where they are many.

        Those in the folder of the same subject come first.
        """
        lines = self._data.contexts_by_lineno(str(self._folder / mutant.path))
        names = {context.partition("|")[0] for context in lines.get(mutant.line, ())} - {""}
        if len(names) > MOST_NAMES:
            names = {name.partition("::")[0] for name in names}
        subject = set(mutant.path.relative_to(SOURCE).with_suffix("").parts)
        return sorted(names, key=lambda name: (subject.isdisjoint(Path(name).parts), name))


class Tree:
    """A copy of the tracked files that one mutant at a time is put into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True
        ).stdout.decode()
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        roots = ("core", "grammar", "plugins", "specs")
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(folder / root) for root in roots),
        }

    def survives(self, mutant: Mutant, coverage: Coverage) -> tuple[bool, str]:
        """Return whether every fast test passes, and the first that does not."""
        path = self.folder / mutant.path
        before = path.read_bytes()
        try:
            path.write_bytes(before[: mutant.start] + mutant.after.encode() + before[mutant.end :])
            # Compiled files are told apart by second and size: make the second differ.
            stamp = time.time() + random.uniform(10, 10_000)
            os.utime(path, (stamp, stamp))
            some = coverage.tests(mutant)
            # What another test has computed may be remembered, so a survivor runs all tests.
            limit = coverage.limit
            failed = (some and self.run(some, limit)) or self.run([], limit)
            return not failed, failed
        finally:
            path.write_bytes(before)
            os.utime(path, (1, 1))

    def run(self, arguments: Sequence[str], limit: int | None = None, **variables: str) -> str:
        """Run pytest until a test fails, and return its line; nothing if all pass.

        A run that takes more than *limit* seconds of processor time has no end.
        """
        options = ["-q", "-x", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-m", "not slow"]
        process = subprocess.Popen(
            [*_limited(limit), sys.executable, "-m", "pytest", *options, *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "no end"
        if not process.returncode:
            return ""
        if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL, 128 + signal.SIGXCPU):
            return "no end"
        lines = output.decode(errors="replace").splitlines()
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        return failed[0][:120] if failed else lines[-1][:120]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--allow", type=int, default=2, help="survivors that are no failure")
    parser.add_argument("--list", action="store_true", help="draw, and run nothing")
    options = parser.parse_args()
    drawn = draw(options.count, options.seed)
    if options.list:
        print(*drawn, sep="\n")
        return 0
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        trees: Queue[Tree] = Queue()
        first = Tree(Path(folder, "0"))
        coverage = Coverage(first)
        trees.put(first)
        for index in range(1, options.jobs):
            trees.put(Tree(Path(folder, str(index))))

        def run(mutant: Mutant) -> tuple[Mutant, bool, str]:
            tree = trees.get()
            try:
                return mutant, *tree.survives(mutant, coverage)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(options.jobs) as pool:
            for mutant, survived, by in pool.map(run, drawn):
                print("survived" if survived else "noticed ", mutant, by, flush=True)
                if survived:
                    survivors.append(mutant)
    print(f"\n{len(survivors)} of {len(drawn)} mutants of seed {options.seed} survive")
    print(*survivors, sep="\n")
    return int(len(survivors) > options.allow)


if __name__ == "__main__":
    sys.exit(main())

"""Lists of all names that other tools have for settings, out of their packages.

    pip download --no-deps --dest FOLDER torchtitan==0.2.2 ...
    python benchmarks/tool_keys.py FOLDER

It rewrites ``plugins/parcost_formats/tools/keys/TOOL.txt`` for the tools of ``tool_keys.toml``
whose packages lie in FOLDER. Code of the packages is parsed, and never run.
"""

from __future__ import annotations

import ast
import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
LISTS = HERE.parent / "plugins" / "parcost_formats" / "tools" / "keys"
_DEEPEST = 8  # sections within sections
_READ = re.compile(r"\bcfg\.get\(\s*['\"](\w+)['\"]")


class Package:
    """The classes and files of a package."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._classes: dict[str, ast.ClassDef] = {}

    def names(self, rules: Mapping[str, Any]) -> Iterator[str]:
        """Yield the names that *rules* select: classes, arguments of parsers, keys of YAML."""
        for pattern in rules.get("files", ()):
            for path, text in self._files.items():
                if fnmatchcase(path, pattern) and path.endswith(".py"):
                    for node in ast.walk(ast.parse(text)):
                        if isinstance(node, ast.ClassDef):
                            self._classes.setdefault(node.name, node)
        for entry in rules.get("classes", ()):
            name, _, prefix = entry.partition(" ")
            yield from self._fields(name, f"{prefix}." if prefix else "", ())
        moves = rules.get("sections", {})
        for pattern in rules.get("arguments", ()):
            for path, text in self._files.items():
                if fnmatchcase(path, pattern):
                    for one in _arguments(ast.parse(text)):
                        start = next((start for start in moves if one.startswith(start)), "")
                        yield f"{moves[start]}.{one}" if start else one
        for entry in rules.get("reads", ()):
            pattern, _, prefix = entry.partition(" ")
            for path, text in self._files.items():
                if fnmatchcase(path, pattern):
                    yield from (f"{prefix}.{one}" for one in _READ.findall(text))
        for pattern in rules.get("yaml", ()):
            for path, text in self._files.items():
                if fnmatchcase(path, pattern):
                    yield from _flat(yaml.safe_load(text), "")
        for pattern in rules.get("every", ()):
            for path, text in self._files.items():
                if fnmatchcase(path, pattern):
                    yield from _find_fields(ast.parse(text))
        for entry in rules.get("parameters", ()):
            name, _, prefix = entry.partition(" ")
            for node in self._classes[name].body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    taken = [one.arg for one in (*node.args.args[1:], *node.args.kwonlyargs)]
                    yield from (f"{prefix}.{one}" if prefix else one for one in taken)
        for pattern in rules.get("constructors", ()):
            for path, text in self._files.items():
                if fnmatchcase(path, pattern):
                    yield from _find_parameters(ast.parse(text))
        for entry in rules.get("constants", ()):
            pattern, _, prefix = entry.partition(" ")
            for path, text in self._files.items():
                if fnmatchcase(path, pattern):
                    yield from (f"{prefix}.{one}" if prefix else one for one in _constants(text))
        yield from rules.get("more", ())

    def _fields(self, name: str, prefix: str, inside: tuple[str, ...]) -> Iterator[str]:
        node = self._classes.get(name)
        if node is None or len(inside) > _DEEPEST or name in inside:
            if not inside and node is None:
                raise SystemExit(f"no class {name}")
            return
        for base in node.bases:
            yield from self._fields(_last(base), prefix, (*inside, "base"))
        own = {one.name: one for one in node.body if isinstance(one, ast.ClassDef)}
        self._classes |= {key: one for key, one in own.items() if key not in self._classes}
        for one in node.body:
            if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name):
                continue
            key = one.target.id
            text = ast.unparse(one.annotation)
            if (key.startswith("_") and not key.startswith("_use")) or "ClassVar" in text:
                continue
            yield f"{prefix}{key}"
            names = {part.id for part in ast.walk(one.annotation) if isinstance(part, ast.Name)}
            names |= {
                part.attr for part in ast.walk(one.annotation) if isinstance(part, ast.Attribute)
            }
            names |= {
                part.value.rpartition(".")[2]
                for part in ast.walk(one.annotation)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            }
            inner = sorted(names & self._classes.keys())
            for child in inner:
                yield from self._fields(child, f"{prefix}{key}.", (*inside, name))
            if not inner and ("dict" in text.lower() or "Any" in text):
                yield f"{prefix}{key}.*"


def _last(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2].partition("[")[0]


def _arguments(tree: ast.AST) -> Iterator[str]:
    """Yield the long flags that a parser of arguments is given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last(node.func) == "add_argument":
            for one in node.args:
                if isinstance(one, ast.Constant) and str(one.value).startswith("--"):
                    yield str(one.value)[2:].replace("-", "_")


def _find_fields(tree: ast.AST) -> Iterator[str]:
    """Yield the fields of all classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                    yield one.target.id
                    text = ast.unparse(one.annotation).lower()
                    if "dict" in text or "parameters" in text:
                        yield f"{one.target.id}.*"


def _find_parameters(tree: ast.AST) -> Iterator[str]:
    """Yield the parameters of all constructors, but for those of exports to ONNX."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ClassDef)
            and node.name.endswith("Config")
            and "Onnx" not in node.name
        ):
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                    yield from (argument.arg for argument in one.args.args[1:])


def _constants(text: str) -> Iterator[str]:
    """Yield the values of constants that are names of settings."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            name, value = ast.unparse(node.targets[0]), node.value.value
            plain = isinstance(value, str) and value.isidentifier() and value.islower()
            if plain and not name.endswith("_DEFAULT") and not name.startswith("_"):
                yield str(value)


def _flat(value: Any, prefix: str) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        yield f"{prefix}{key}"
        yield from _flat(inner, f"{prefix}{key}.")
        if inner == {} or (inner is None and str(key).endswith("kwargs")):
            yield f"{prefix}{key}.*"


def _files(archive: Path) -> Mapping[str, str]:
    if archive.name.endswith(".tar.gz"):
        with tarfile.open(archive) as opened:
            return {
                one.name.partition("/")[2]: opened.extractfile(one)
                .read()
                .decode("utf-8", "replace")  # type: ignore[union-attr]
                for one in opened.getmembers()
                if one.isfile() and one.name.endswith(".py")
            }
    with zipfile.ZipFile(archive) as found:
        return {
            one: found.read(one).decode("utf-8", "replace")
            for one in found.namelist()
            if one.endswith((".py", ".yaml", ".yml"))
        }


def _release(folder: Path, release: Mapping[str, Any]) -> set[str]:
    files: dict[str, str] = {}
    for package in release["packages"]:
        name, _, version = package.partition("==")
        plain = f"{name.replace('-', '_')}-{version}"
        found = [*folder.glob(f"{plain}-*.whl"), *folder.glob(f"{plain}.tar.gz")]
        if not found:
            raise FileNotFoundError(package)
        files |= _files(found[0])
    left_out = release.get("without", ())
    names = Package(files).names(release)
    return {one for one in names if not any(fnmatchcase(one, other) for other in left_out)}


def main(folder: Path) -> None:
    """Rewrite the lists of those tools whose packages are in *folder*."""
    LISTS.mkdir(exist_ok=True)
    for tool, releases in tomllib.loads((HERE / "tool_keys.toml").read_text()).items():
        lines = [
            "# Names of settings, by benchmarks/tool_keys.py: those of a release, + and - others."
        ]
        before: set[str] = set()
        try:
            for at, release in enumerate(releases):
                names = _release(folder, release)
                lines.append(f"= {release['title']} ({', '.join(release['packages'])})")
                lines += (f"{'+' if at else ''}{one}" for one in sorted(names - before))
                lines += (f"-{one}" for one in sorted(before - names))
                print(f"{release['title']}: {len(names)} names")
                before = names
        except FileNotFoundError as missing:
            print(f"{tool}: {missing} is not in {folder}", file=sys.stderr)
            continue
        (LISTS / f"{tool}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

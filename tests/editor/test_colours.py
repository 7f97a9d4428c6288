"""Editors colour a spec by the language's own tokens: the TextMate grammar and the Pygments lexer."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Error, Keyword, Name, Number, String

from parcost.language import syntax as s
from parcost.language.build import split_quantity
from parcost.language.parse import parse, tables
from parcost.language.text import Source
from parcost.version import __version__

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "grammar" / "editors" / "vscode"
SPECS = sorted([*ROOT.glob("specs/**/*.par"), *ROOT.glob("tests/errors/*.par")])
NAMES = ("variable.", "entity.name.", "keyword.", "storage.type.", "support.", "constant.language.")
#: What begins the scope of each kind of token. Those that are left out are white space.
SCOPES = {
    "COMMENT": ("comment.",),
    "STRING": ("string.quoted.",),
    "UNTERMINATED": ("invalid.illegal.unclosed-string",),
    "UNKNOWN": ("invalid.illegal.",),
    "NUMBER": ("constant.numeric.",),
    "UNIT": ("keyword.other.unit.",),
    "NAME": NAMES,
    "AT": ("punctuation.definition.annotation.",),
    **dict.fromkeys(
        ("LBRACE", "RBRACE", "LPAR", "RPAR", "LSQB", "RSQB"), ("punctuation.section.",)
    ),
    **dict.fromkeys(("_DOT", "_COMMA"), ("punctuation.separator.",)),
    **dict.fromkeys(
        ("EQUAL", "RELATION", "TOLERANCE", "PLUS", "MINUS", "STAR", "SLASH", "OR", "AND", "NOT"),
        ("keyword.operator.",),
    ),
    **dict.fromkeys(("_QUESTION", "_COLON"), ("keyword.operator.",)),
}


def npm(folder: Path, *arguments: str) -> str:
    command = [shutil.which(arguments[0]) or arguments[0], *arguments[1:]]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the extension with what it is built of."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("extension") / "vscode"
    ignore = shutil.ignore_patterns("node_modules", "dist", "*.vsix")
    shutil.copytree(EXTENSION, folder, ignore=ignore)
    npm(folder, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund")
    return folder


def pieces(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the kind, the start and the end of each token; units apart from their numbers."""
    for match in tables().tokens.finditer(text):
        kind = match.lastgroup or ""
        if kind == "QUANTITY":
            number, _ = split_quantity(match[0])
            unit = match.end() - len(match[0][len(number) :].lstrip())
            yield "NUMBER", match.start(), match.start() + len(number)
            yield "UNIT", unit, match.end()
        elif kind in SCOPES:
            yield kind, match.start(), match.end()


def by_tree(block: s.Block) -> Iterator[tuple[int, str]]:
    """Yield the offsets of names whose part the syntax tree knows, and the scope of that part."""
    for item in block.items:
        if isinstance(item, s.Block):
            yield item.kind.span.start, "entity.name.type.block"
            yield from ((p.kind.span.start, "storage.type.annotation") for p in item.provenance)
            yield from by_tree(item)
        elif isinstance(item, s.Attribute):
            yield item.name.span.start, "variable.other.property"
            yield from ((p.kind.span.start, "storage.type.annotation") for p in item.provenance)
        elif isinstance(item, s.Statement):
            yield item.span.start, "keyword.control.import"


@pytest.mark.slow
def test_textmate_scopes_are_the_tokens_of_the_language(extension: Path) -> None:
    texts = {str(path): path.read_text(encoding="utf-8") for path in SPECS}
    assert len(texts) > 300
    scopes = json.loads(npm(extension, "node", "tokens.js", *texts))
    for path, text in texts.items():
        starts = [0, *(at + 1 for at, character in enumerate(text) if character == "\n")]
        assert max(map(ord, text), default=0) < 0x10000  # so that columns of both are alike
        at = {}
        for line, start, end, scope in scopes[path]:
            for offset in range(starts[line] + start, starts[line] + end):
                at[offset] = scope.split()[-1]
        for kind, start, end in pieces(text):
            held = {at[offset] for offset in range(start, end)}
            where = f"{path}: {kind} {text[start:end]!r} at {start} is {held}"
            assert all(scope.startswith(SCOPES[kind]) for scope in held), where
            assert len(held) == 1 or kind == "NAME", where
        tree, errors = parse(Source(path, text))
        for offset, scope in () if errors else by_tree(tree):
            assert at[offset].startswith(scope), (
                f"{path}: {text[offset : offset + 20]!r}: {at[offset]}"
            )


@pytest.mark.slow
def test_the_extension_packages(extension: Path) -> None:
    npm(extension, "npx", "vsce", "package", "--out", "parcost.vsix")
    with zipfile.ZipFile(extension / "parcost.vsix") as archive:
        names = set(archive.namelist())
        manifest = json.loads(archive.read("extension/package.json"))
    assert f"extension/{manifest['main'].removeprefix('./')}" in names
    assert {f"extension/{g['path'][2:]}" for g in manifest["contributes"]["grammars"]} <= names
    assert not any("node_modules" in name for name in names)


def test_the_extension_has_the_version_of_the_package() -> None:
    manifest = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))
    assert manifest["version"] == __version__.partition(".dev")[0]
    assert (EXTENSION / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


TEXT = """\
use catalog.devices.h100_sxm as fast  # the device
fabric rail extends site.rail @vendor("a sheet") {
  level node { size = 8 devices, bandwidth = min(a, 450 GB/s) per_direction }
}
"""


def test_pygments_colours_a_spec_and_loses_nothing() -> None:
    lexer = get_lexer_for_filename("a.par")
    found = list(lexer.get_tokens_unprocessed(TEXT))
    assert "".join(text for _, _, text in found) == TEXT
    kinds = {text: kind for _, kind, text in found}
    assert kinds["use"] is kinds["as"] is kinds["extends"] is Keyword
    assert kinds["fabric"] is kinds["level"] is Keyword.Type
    assert kinds["size"] is kinds["bandwidth"] is Name.Attribute
    assert kinds["450 GB/s"] is kinds["8 devices"] is Number
    assert kinds["min"] is Name.Function
    assert kinds["vendor"] is Name.Decorator
    assert kinds['"a sheet"'] is String.Double
    assert kinds["# the device"] is Comment.Single


@pytest.mark.parametrize("text", ["let a = 1 $ 2\n", 'let a = "x\n', "layout { tp = 8 ; }\n"])
def test_pygments_finds_errors_where_the_parser_does(text: str) -> None:
    lexer = get_lexer_for_filename("a.par")
    assert any(kind is Error for _, kind, _ in lexer.get_tokens_unprocessed(text))
    assert parse(Source("a.par", text))[1]


def test_pygments_finds_no_error_in_the_catalogue() -> None:
    lexer = get_lexer_for_filename("a.par")
    for path in SPECS[::25]:
        tokens = list(lexer.get_tokens_unprocessed(path.read_text(encoding="utf-8")))
        assert tokens, path
        assert [text for _, kind, text in tokens if kind is Error] == [], path

"""Repositories made to start a program, to connect, or never to end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from parcost_apps.cli import main
from parcost_apps.diff import revisions
from parcost_apps.diff.git import _environment

from ..rows import mark_most

AUTHOR = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b.c",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b.c",
}
SPEC = "let nodes = 8\n"


def git(folder: Path, *arguments: str, given: bytes = b"") -> str:
    """Return what git prints, run as the author of a repository runs it."""
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "commit.gpgsign=false", *arguments],
        input=given,
        check=True,
        capture_output=True,
        env={**os.environ, **AUTHOR},
    )
    return done.stdout.decode().strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with one commit of a spec that has changed since."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main", ".")
    (folder / "a.par").write_text(SPEC)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    (folder / "a.par").write_text("let nodes = 4\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return a program that leaves a mark beside itself when it runs."""
    path = tmp_path / "evil.sh"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def ran(tmp_path: Path) -> Callable[[], bool]:
    return (tmp_path / "ran").exists


def loose_object(folder: Path, name: str) -> Path:
    return folder / "objects" / name[:2] / name[2:]


def write_tree(folder: Path, entries: bytes) -> str:
    """Return a tree of any entries, which git itself would not make."""
    command = ("hash-object", "-t", "tree", "--literally", "-w", "--stdin")
    return git(folder, *command, given=entries)


def entry(mode: str, name: str, named: str) -> bytes:
    return f"{mode} {name}\0".encode("utf-8", "surrogateescape") + bytes.fromhex(named)


def commit(folder: Path, tree: str) -> str:
    return git(folder, "commit-tree", "-m", "made", tree)


TRANSPORTS: Mapping[str, Callable[[str], Mapping[str, str]]] = {
    "uploadpack": lambda s: {"remote.origin.url": ".", "remote.origin.uploadpack": s},
    "sshCommand": lambda s: {"remote.origin.url": "ssh://h.invalid/x", "core.sshCommand": s},
    "gitProxy": lambda s: {"remote.origin.url": "git://h.invalid/x", "core.gitProxy": s},
    "ext": lambda s: {"remote.origin.url": f"ext::{s}", "protocol.ext.allow": "always"},
    "helper": lambda s: {"remote.origin.url": "x", "remote.origin.vcs": f"../../../../{s}"},
    "askpass": lambda s: {"remote.origin.url": "https://127.0.0.1:1/x", "core.askPass": s},
    "credential": lambda s: {
        "remote.origin.url": "https://127.0.0.1:1/x",
        "credential.helper": f"!{s}",
    },
}
PARTIAL = {
    "extensions.partialClone": "origin",
    "core.repositoryFormatVersion": "1",
    "remote.origin.promisor": "true",
    "protocol.allow": "always",
    "protocol.file.allow": "always",
}


@pytest.mark.parametrize("transport", mark_most(TRANSPORTS))
@pytest.mark.parametrize("embedded", [False, True], ids=["clone", "embedded"])
def test_a_missing_object_is_never_fetched(
    repository: Path,
    script: Path,
    ran: Callable[[], bool],
    transport: str,
    embedded: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A partial clone fetches what it lacks by a program that its configuration names."""
    blob = git(repository, "rev-parse", "HEAD:a.par")
    folder = repository / ".git"
    if embedded:  # a folder of an ordinary clone that is a repository itself
        inner = repository / "specs"
        inner.mkdir()
        for name in ("HEAD", "config", "objects", "refs"):
            (folder / name).rename(inner / name)
        (inner / "a.par").write_text("let nodes = 4\n")
        git(repository, "init", "-q", "-b", "main", ".")
        monkeypatch.chdir(inner)
        folder = inner
    config = folder / "config"
    settings = {**PARTIAL, **TRANSPORTS[transport](str(script))}
    if embedded:
        settings |= {"core.bare": "false", "core.worktree": "."}
    for name, value in settings.items():
        subprocess.run(["git", "config", "-f", str(config), name, value], check=True)
    loose_object(folder, blob).unlink()
    started = time.monotonic()
    assert main(["diff", "main", "--", "a.par"]) == 2
    assert time.monotonic() - started < 2
    assert not ran()
    assert "Traceback" not in "".join(capsys.readouterr())


def test_the_attack_works_without_the_guard(
    repository: Path, script: Path, ran: Callable[[], bool]
) -> None:
    """The test above would find a fault: without our environment git runs the program."""
    blob = git(repository, "rev-parse", "HEAD:a.par")
    for name, value in {**PARTIAL, **TRANSPORTS["uploadpack"](str(script))}.items():
        git(repository, "config", name, value)
    loose_object(repository / ".git", blob).unlink()
    for environment, expected in ((_environment(), False), (dict(os.environ), True)):
        subprocess.run(
            ["git", "cat-file", "-p", blob], check=False, capture_output=True, env=environment
        )
        assert ran() is expected


@pytest.mark.slow
def test_no_program_of_a_configuration_runs(
    repository: Path, script: Path, ran: Callable[[], bool]
) -> None:
    """Hooks, monitors, filters, textconv, aliases, pagers, editors and signature programs."""
    for name in (
        "alias.cat-file",
        "alias.ls-tree",
        "alias.rev-parse",
        "core.editor",
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "diff.evil.command",
        "diff.evil.textconv",
        "diff.external",
        "filter.evil.clean",
        "filter.evil.process",
        "filter.evil.smudge",
        "gpg.program",
        "pager.cat-file",
        "pager.ls-tree",
        "trailer.x.command",
        "uploadpack.packObjectsHook",
    ):
        value = f"!{script}" if name.startswith("alias") else str(script)
        git(repository, "config", name, value)
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (repository / "hooks").mkdir()
    git(repository, "config", "core.hooksPath", "hooks")
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        for place in (repository / ".git/hooks" / hook, repository / "hooks" / hook):
            place.write_text(script.read_text())
            place.chmod(0o755)
    assert main(["diff", "main", "--", "."]) == 0
    assert not ran()


def test_a_configuration_that_includes_another_runs_nothing(
    repository: Path, script: Path, ran: Callable[[], bool]
) -> None:
    (repository / "more").write_text(f"[core]\n\tfsmonitor = {script}\n\tpager = {script}\n")
    git(repository, "config", "include.path", "../more")
    assert main(["diff", "main", "--", "."]) == 0
    assert not ran()


@pytest.mark.slow
def test_a_submodule_is_left_out(repository: Path, script: Path, ran: Callable[[], bool]) -> None:
    head = git(repository, "rev-parse", "HEAD")
    (repository / ".gitmodules").write_text(
        f'[submodule "x"]\n\tpath = x\n\turl = ext::{script}\n\tupdate = !{script}\n'
    )
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},x")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "two")
    assert main(["diff", "main", "--", "."]) == 0
    assert not ran()


def test_objects_of_another_repository_are_read_and_run_nothing(
    repository: Path, tmp_path: Path, script: Path, ran: Callable[[], bool]
) -> None:
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", str(other))
    git(other, "config", "core.fsmonitor", str(script))
    alternates = repository / ".git/objects/info/alternates"
    alternates.parent.mkdir(exist_ok=True)
    alternates.write_text(f"{other}/.git/objects\n")
    assert main(["diff", "main", "--", "."]) == 0
    assert not ran()


@pytest.mark.slow
def test_links_lead_nowhere(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A link to a file, a link to a folder above, and a file behind a link."""
    target = git(repository, "hash-object", "-w", "--stdin", given=b"/etc")
    file = git(repository, "hash-object", "-w", "--stdin", given=SPEC.encode())
    inner = write_tree(repository, entry("100644", "b.par", file))
    tree = write_tree(
        repository,
        entry("100644", "a.par", file)
        + entry("120000", "link", target)
        + entry("40000", "link", inner),
    )
    made = commit(repository, tree)
    with revisions.files_of(made) as folder:
        assert not (folder / "link").is_symlink()
        assert (folder / "link/b.par").read_text() == SPEC
    assert main(["diff", made, "--", "."]) == 0
    assert "root:" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "name",
    mark_most(
        ["..", ".git", "/etc/x", "../../../x", ".GIT\u200c", "a\nb", "é", "\udcff", "-rf", "x:y"]
    ),
)
def test_odd_names_stay_in_the_folder(repository: Path, tmp_path: Path, name: str) -> None:
    file = git(repository, "hash-object", "-w", "--stdin", given=SPEC.encode())
    entries = entry("100644", name, file) + entry("100644", "a.par", file)
    made = commit(repository, write_tree(repository, entries))
    before = {path for path in tmp_path.rglob("*") if ".git" not in path.parts}
    assert main(["diff", made, "--", "."]) == 0
    after = {path for path in tmp_path.rglob("*") if ".git" not in path.parts}
    assert after == before


@pytest.mark.slow
def test_names_that_no_file_system_has_are_errors(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = git(repository, "hash-object", "-w", "--stdin", given=SPEC.encode())
    long = write_tree(repository, entry("100644", "x" * 300, file))
    deep = write_tree(repository, entry("100644", "a.par", file))
    for _ in range(30):
        deep = write_tree(repository, entry("40000", "y" * 200, deep))
    both = write_tree(
        repository,
        entry("100644", "a", file)
        + entry("40000", "a", write_tree(repository, entry("100644", "b", file))),
    )
    twice = write_tree(repository, entry("100644", "a", file) * 2)
    for tree in (long, deep, both, twice):
        assert main(["diff", commit(repository, tree), "--", "a.par"]) == 2
        printed = "".join(capsys.readouterr())
        assert "Traceback" not in printed
        assert "error[git]" in printed


def test_a_missing_object_is_named(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blob = git(repository, "rev-parse", "HEAD:a.par")
    loose_object(repository / ".git", blob).unlink()
    assert main(["diff", "main", "--", "a.par"]) == 2
    assert f"the object {blob} is not in this clone" in "".join(capsys.readouterr())


@pytest.mark.slow
def test_nested_trees_end(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten entries of each tree are one tree: ten levels have 10^10 files in 3 kB."""
    monkeypatch.setattr(revisions, "_MOST_FILES", 1000)
    tree = git(repository, "hash-object", "-w", "--stdin", given=SPEC.encode())
    mode = "100644"
    for _ in range(10):
        tree = write_tree(repository, b"".join(entry(mode, str(n), tree) for n in range(10)))
        mode = "40000"
    started = time.monotonic()
    assert main(["diff", commit(repository, tree), "--", "a.par"]) == 2
    assert time.monotonic() - started < 2
    assert "more than 1,000 files" in "".join(capsys.readouterr())


@pytest.mark.slow
def test_nested_trees_without_a_file_end(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parcost_apps.diff.git._MOST_SECONDS", 0.5)
    tree = write_tree(repository, b"")
    for _ in range(12):
        entries = b"".join(entry("40000", f"{n:02}", tree) for n in range(20))
        tree = write_tree(repository, entries)
    assert main(["diff", commit(repository, tree), "--", "a.par"]) == 2
    assert "took more than" in "".join(capsys.readouterr())


def test_files_that_are_large_only_together_are_refused(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compressed zeros: 200 files of 1 MB are kilobytes in the repository."""
    monkeypatch.setattr(revisions, "_MOST_BYTES", 2**22)
    file = git(repository, "hash-object", "-w", "--stdin", given=bytes(10**6))
    tree = write_tree(
        repository, b"".join(entry("100644", f"{n:03}.par", file) for n in range(200))
    )
    assert main(["diff", commit(repository, tree), "--", "a.par"]) == 2
    assert "files of more than 4 MiB" in "".join(capsys.readouterr())


@pytest.mark.slow
def test_a_file_over_the_limit_of_a_spec_is_left_out(repository: Path) -> None:
    small = git(repository, "hash-object", "-w", "--stdin", given=SPEC.encode())
    large = git(repository, "hash-object", "-w", "--stdin", given=bytes(5 * 2**20))
    entries = entry("100644", "a.par", small) + entry("100644", "b.bin", large)
    with revisions.files_of(commit(repository, write_tree(repository, entries))) as folder:
        assert [path.name for path in folder.iterdir() if path.is_file()] == ["a.par"]


def test_an_object_in_several_places_is_read_once(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A blob that is loose and in two packs changes nothing of what is printed."""
    main(["diff", "HEAD", "--", "a.par"])
    alone = capsys.readouterr()
    git(repository, "repack", "-q", "-a")
    blob = git(repository, "rev-parse", "HEAD:a.par")
    git(repository, "pack-objects", "-q", ".git/objects/pack/again", given=f"{blob}\n".encode())
    assert loose_object(repository / ".git", blob).exists()
    assert len(list((repository / ".git/objects/pack").glob("*.pack"))) == 2
    main(["diff", "HEAD", "--", "a.par"])
    assert capsys.readouterr() == alone
    assert "a.par" in alone.out

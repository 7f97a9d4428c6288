"""Revisions of a repository that nobody has looked at."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from parcost_apps.cli import main


def git(*arguments: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *author, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with a spec that has changed since its only commit."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "main", ".")
    (tmp_path / "a.par").write_text("let nodes = 8\n")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    (tmp_path / "a.par").write_text("let nodes = 4\n")
    return tmp_path


@pytest.mark.slow
def test_nothing_of_a_repository_is_run(repository: Path) -> None:
    script = repository / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {repository}/ran\n")
    script.chmod(0o755)
    for name in ("core.fsmonitor", "core.pager", "core.sshCommand", "filter.evil.smudge"):
        git("config", name, str(script))
    (repository / ".gitattributes").write_text("*.par filter=evil\n")
    for hook in ("post-checkout", "post-index-change", "reference-transaction"):
        place = repository / ".git/hooks" / hook
        place.write_text(script.read_text())
        place.chmod(0o755)
    for revisions in ("main", "main..HEAD", "main...HEAD"):
        assert main(["diff", revisions, "--", "."]) == 0
    assert not (repository / "ran").exists()


def test_a_link_of_a_revision_leads_nowhere(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "link.par").symlink_to("/etc/passwd")
    git("add", ".")
    git("commit", "-q", "-m", "two")
    (repository / "link.par").unlink()
    main(["diff", "main", "--", "."])
    assert "root:" not in "".join(capsys.readouterr())

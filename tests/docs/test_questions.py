"""The page of questions: each of the 16 has one command that answers it, and what that prints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import frozen

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "questions.md"
FILES = DOCS / "how-to" / "files"
_ROW = re.compile(
    r"^\| (?P<name>Q\d+) \| (?P<what>[^|]+) \| [^|]+ \| \[[^]]+\]\((?P<to>[^)]+)\) \|$"
)
_COMMAND = re.compile(r"^```sh\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_OUTPUT = re.compile(r"(?<=^```text\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)


@frozen
class Answer:
    """A question, and the section of a page that answers it."""

    name: str
    page: Path
    heading: str

    @property
    def section(self) -> str:
        """Return the text below the heading, up to the next one."""
        text = self.page.read_text(encoding="utf-8")
        (found,) = [
            part for part in _sections(text) if _anchor(part.splitlines()[0]) == self.heading
        ]
        return found

    @property
    def command(self) -> str:
        """Return the only command of the section."""
        (text,) = [match["text"] for match in _COMMAND.finditer(self.section)]
        (line,) = text.splitlines()
        return line

    @property
    def output(self) -> str:
        """Return what the section shows of the output; it may end with a line of dots.

        A section without any is of a command that writes files.
        """
        shown = _OUTPUT.findall(self.section)
        return "".join(shown) if len(shown) < 2 else ""


def _sections(text: str) -> list[str]:
    return re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]


def _anchor(heading: str) -> str:
    words = re.sub(r"[^\w\s-]", "", heading.removeprefix("## ")).strip().lower()
    return re.sub(r"[\s-]+", "-", words)


def answers() -> list[Answer]:
    rows = [_ROW.match(line) for line in PAGE.read_text(encoding="utf-8").splitlines()]
    found = []
    for row in filter(None, rows):
        path, _, heading = row["to"].partition("#")
        found.append(Answer(row["name"], PAGE.parent / path, heading))
    return found


def test_all_17_questions_have_an_answer_of_their_own() -> None:
    found = answers()
    assert [answer.name for answer in found] == [f"Q{n}" for n in range(1, 18)]
    assert len({(answer.page, answer.heading) for answer in found}) == 17
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert "(docs/questions.md): 17 questions" in readme


def test_each_is_answered_by_one_command_and_shows_its_output() -> None:
    for answer in answers():
        program, *arguments = shlex.split(answer.command)
        assert program == "parcost", answer.name
        assert arguments, answer.name
        assert answer.output.strip() or "--out" in arguments, answer.name


def test_every_section_of_a_task_answers_a_question() -> None:
    """A page by task has nothing that the list of questions does not lead to."""
    linked = {(answer.page, answer.heading) for answer in answers()}
    for page in sorted((DOCS / "how-to").glob("*.md")):
        for section in _sections(page.read_text(encoding="utf-8")):
            assert (page, _anchor(section.splitlines()[0])) in linked


@pytest.mark.slow
@pytest.mark.parametrize("answer", answers(), ids=lambda answer: answer.name)
def test_the_command_prints_what_its_page_shows(
    answer: Answer,
    print_output: Callable[[str, Path, str], str],
    request: pytest.FixtureRequest,
) -> None:
    if "chakra" in answer.command:
        pytest.importorskip("parcost_formats.traces")
    printed = print_output(answer.command, FILES, answer.output)
    if request.config.getoption("update"):
        section = _OUTPUT.sub(lambda _: printed, answer.section)
        text = answer.page.read_text(encoding="utf-8")
        answer.page.write_text(text.replace(answer.section, section), encoding="utf-8")
    assert answer.output == printed

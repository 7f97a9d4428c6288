"""The page on accuracy is what the model gives now."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import parcost
from parcost_plugins.vocabulary import Cluster

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "accuracy.md"
MARK = "below: by hand -->\n"  # what stands above is what a command prints
_CLAIM = re.compile(r"step_time\s*(?:=|<=|>=)\s*([0-9.]+) s")
_COMPUTED = "llama3_70b_64_h100"  # worked out by hand: nobody ran it


class Run(NamedTuple):
    """One published run: seconds of a step, as measured and as predicted."""

    file: str
    study: str
    devices: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    def row(self) -> str:
        name = f"`{self.file}`" if self.study == self.file else f"`{self.file}`, `{self.study}`"
        seconds = f"{self.measured:.4g} s | {self.predicted:.4g} s"
        return f"| {name} | {self.devices:,} | {seconds} | {self.error:+.1%} |".replace("%", " %")


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return list(_runs())


def _runs() -> Iterator[Run]:
    for path in sorted((ROOT / "specs" / "runs").glob("*.par")):
        for scenario in parcost.load(path) if path.stem != _COMPUTED else ():
            result = scenario.evaluate().result
            claims = [m for e in result.expectations if (m := _CLAIM.match(e.text))]
            if not claims:
                continue  # its memory is judged alone
            (claimed,) = claims
            yield Run(
                file=path.stem,
                study=scenario.name,
                devices=int(result.study[Cluster].devices),
                measured=float(claimed[1]),
                predicted=float(result.figure("step_time")),
            )


@pytest.mark.slow
def test_the_table_of_runs_is_current(runs: list[Run], golden: Callable[[Path, str], None]) -> None:
    """``pytest --update`` writes it again."""
    made, mark, by_hand = PAGE.read_text().partition(MARK)
    head, found, tail = re.split(r"((?:^\| .*\n|^\|-.*\n)+)", by_hand, flags=re.MULTILINE)
    title, rule, *_ = found.splitlines()
    table = "\n".join([title, rule, *(run.row() for run in runs)])
    golden(PAGE, f"{made}{mark}{head}{table}\n{tail}")


@pytest.mark.slow
def test_the_errors_that_the_page_quotes_are_those_of_the_table(runs: list[Run]) -> None:
    text = " ".join(PAGE.read_text().split())
    size = sorted(abs(run.error) for run in runs)
    ampere = sorted(abs(run.error) for run in runs if run.file.endswith("_a100"))
    assert f"median error of all {len(runs)} is {_median(size):.0%}".replace("%", " %") in text
    assert f"of the {len(ampere)} on A100 {_median(ampere):.0%}".replace("%", " %") in text
    assert f"the largest is {size[-1]:.0%}".replace("%", " %") in text
    fast = sum(run.error < 0 for run in runs)
    assert f"{fast} of the {len(runs)} predictions are too fast" in text


def _median(values: list[float]) -> float:
    half, odd = divmod(len(values), 2)
    return values[half] if odd else (values[half - 1] + values[half]) / 2

"""``parcost show``: a spec with everything that it leaves unsaid.

What is printed is a spec itself: every block, every attribute, no import; comments say
where each value is from. Evaluating it gives the same report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from parcost.cli import options
from parcost.cli.output import Reporter, put

if TYPE_CHECKING:
    from parcost.scenario import Scenario


@click.command("show")
@options.path
@options.study
@options.overrides
@options.without
def command(
    path: str, study: str | None, overrides: tuple[str, ...], without: tuple[str, ...]
) -> int:
    """Print the resolved spec: every default, and where each value is from."""
    from parcost import batch

    values = options.parse_overrides(overrides)
    session = options.session(without)
    worst = 0
    for _, scenario in batch.scenarios([path], session, overrides=values, study=study):
        pages = (
            scenario
            if isinstance(scenario, batch.Rejected)
            else batch.attempt(path, lambda s=scenario: list(_pages(s)))  # type: ignore[misc]
        )
        if isinstance(pages, batch.Rejected):
            Reporter()(pages.diagnostics)
            worst = max(worst, pages.exit_code)
            continue
        for page in pages:
            put(page)
    return worst


def _pages(scenario: Scenario) -> Iterator[str]:
    from parcost import __version__
    from parcost.render.resolved import resolved

    for study in scenario.studies():
        yield f"# {scenario.name} of {scenario.path}, resolved by parcost {__version__}\n"
        yield resolved(study) + "\n"

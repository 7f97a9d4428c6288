"""``parcost export``: studies as the settings of the tool that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from parcost_apps import options
from parcost_apps.cli.messages import Reporter, write_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parcost.contract.settings import SettingsWriter
    from parcost.engine.scenario import Scenario
    from parcost.engine.session import Session
    from parcost_apps.export.settings import ExportedSettings
    from parcost_formats.rendering.rejection import Rejection


@click.command("export")
@click.argument("target", required=False, metavar="TOOL")
@click.argument("paths", nargs=-1, metavar="FILE...")
@click.option("--list", "listed", is_flag=True, help="List the tools.")
@options.studies
@options.out
def command(
    target: str | None,
    paths: tuple[str, ...],
    listed: bool,
    given: options.StudyOptions,
    out: str | None,
) -> int:
    """Write studies as the settings of a training tool.

    Flags or a configuration go to stdout: `parcost export megatron job.par --out run.sh`. Comments
    and stderr list values for which the tool has no setting, and settings that you must add by
    hand. If the tool cannot run the same job, that is an error.
    """
    from parcost_apps.export.settings import ExportedSettings, write_settings, writer_of

    session = given.session()
    if listed:
        for name, (_, one) in sorted(session.plugins.offers("settings_writers").items()):
            write_message(f"{name:18} {one.title}")
        return 0
    if not target or not paths:
        raise click.UsageError("write `parcost export TOOL FILE`, or --list the tools")
    writer = writer_of(session, target)
    made: list[ExportedSettings] = []
    worst = 0
    for one in _export(paths, session, writer, given):
        if isinstance(one, ExportedSettings):
            made.append(one)
        else:
            Reporter()(one.diagnostics)
            worst = max(worst, one.exit_code)
    if len(made) > 1:
        message = f"`parcost export` writes one study, but the files have {len(made)}"
        raise click.UsageError(f"{message}: choose one with --study NAME")
    if made:
        write_settings(made, out)
    return worst


def _export(
    paths: tuple[str, ...],
    session: Session,
    writer: SettingsWriter,
    given: options.StudyOptions,
) -> Iterator[ExportedSettings | Rejection]:
    """Yield the settings of every study, or its rejection."""
    from functools import partial

    from parcost_apps.batch.scenarios import is_skipped
    from parcost_formats.rendering.rejection import Rejection, attempt

    for spec, scenario in given.scenarios(paths, session):
        if isinstance(scenario, Rejection):
            yield scenario
        elif not is_skipped(scenario, spec):
            yield attempt(scenario.path, partial(_settings, scenario, writer, session))


def _settings(
    scenario: Scenario, writer: SettingsWriter, session: Session
) -> ExportedSettings | Rejection:
    """Return the settings of a scenario, or the rules that reject it.

    Raises:
        SpecError: The tool cannot run it.
    """
    from parcost.engine.rules import diagnose, rules
    from parcost.language.errors import SpecError
    from parcost.search.result import plain_value
    from parcost.system.files import failure
    from parcost_apps.export.settings import export
    from parcost_formats.rendering.rejection import Rejection

    try:
        study = scenario.first
        if scenario.axes:
            name, values = scenario.axes[0]
            help = f"choose one, such as --set {name}={plain_value(values[0])}"
            message = f"`{name}` is swept; an exported job has one value"
            raise failure("export-sweep", message, scenario.path, help)
        found = rules(study).failed
    except SpecError as error:
        raise scenario.explain(error) from error
    rejected = [diagnose(check, study) for check in found if check.severity == "error"]
    if rejected:
        return Rejection(path=scenario.path, diagnostics=rejected, exit_code=1)
    return export(study, writer, session)

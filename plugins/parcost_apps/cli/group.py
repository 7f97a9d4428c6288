"""The group of all commands, listed from package metadata and imported on first use."""

from __future__ import annotations

from functools import cache, cached_property
from importlib.metadata import Distribution, EntryPoint, entry_points

import click

GROUP = "parcost.commands"
OURS = "parcost"


class UnusableCommandError(Exception):
    """A command that an installed package offers cannot be used."""


class Commands(click.Group):
    """Every installed command.

    Listing them imports only our own commands, which are light.
    """

    @cached_property
    def points(self) -> dict[str, EntryPoint]:
        """The entry points by name; if several have one name, parcost's own or else the first is
        used.
        """
        found = sorted(entry_points(group=GROUP), key=lambda p: (_distribution(p) != OURS, str(p)))
        return {point.name: point for point in reversed(found)}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return sorted(self.points)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of that name, imported."""
        point = self.points.get(cmd_name)
        if point is None:
            return None
        from parcost.contract.calls import CallError, call

        try:
            command = call(point.load)
        except CallError as error:
            came = _distribution(point)
            message = f"`parcost {cmd_name}` of {came} cannot be imported: {error.text}"
            raise UnusableCommandError(message) from error
        if not isinstance(command, click.Command):
            message = f"`{point.value}` of {_distribution(point)} is not a command of click"
            raise UnusableCommandError(message)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that *args* start with; for an unknown name, suggest one."""
        if args and not args[0].startswith("-") and args[0] not in self.points:
            from parcost.language.diagnostics import did_you_mean

            shorter = max((c for c in self.points if args[0].startswith(c)), key=len, default="")
            hint = f"did you mean `{shorter}`?" if shorter else did_you_mean(args[0], self.points)
            if args[0].endswith(".par"):
                hint = f"write `parcost eval {args[0]}`"
            hint = hint or "commands are " + ", ".join(self.list_commands(ctx))
            ctx.fail(f"there is no command `{args[0]}`; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List every command with its summary; a third party's command with its package."""
        rows = []
        for name in self.list_commands(ctx):
            point = self.points[name]
            if _distribution(point) == OURS:
                command = self.get_command(ctx, name)
                if command and not command.hidden:
                    rows.append((name, command.get_short_help_str(100)))
            else:
                rows.append((name, f"(from {_distribution(point)})"))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _distribution(point: EntryPoint) -> str:
    return _name(point.dist) if point.dist else "an unknown distribution"


@cache  # the metadata is parsed anew for each question
def _name(distribution: Distribution) -> str:
    return distribution.name

"""The group of all commands, listed from package metadata and imported on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    def points(self) -> Mapping[str, Sequence[EntryPoint]]:
        """The entry points by name; a name that several packages use has several."""
        found: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=GROUP):
            found.setdefault(point.name, []).append(point)
        return found

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return sorted(self.points)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of that name, imported."""
        if cmd_name not in self.points:
            return None
        point, *others = self.points[cmd_name]
        came = _packages([point, *others])
        if others:
            message = f"`parcost {cmd_name}` is a command of {came}: uninstall all but one"
            raise UnusableCommandError(message)
        from parcost.contract.calls import CallError, call

        try:
            command = call(point.load)
        except CallError as error:
            message = f"`parcost {cmd_name}` of {came} cannot be imported: {error.text}"
            raise UnusableCommandError(message) from error
        if not isinstance(command, click.Command):
            message = f"`{point.value}` of {came} is not a command of click"
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
            if (came := _packages(self.points[name])) == OURS:
                command = self.get_command(ctx, name)
                if command and not command.hidden:
                    rows.append((name, command.get_short_help_str(100)))
            else:
                rows.append((name, f"(from {came})"))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _packages(points: Sequence[EntryPoint]) -> str:
    names = [_name(one.dist) if one.dist else "an unknown distribution" for one in points]
    return " and ".join(sorted(names))


@cache  # the metadata is parsed anew for each question
def _name(distribution: Distribution) -> str:
    return distribution.name

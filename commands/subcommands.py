"""Commands that have verbs: `sluice NOUN VERB`. What is special about ours on top of click.

Options may stand before the verb, too; a misspelt verb is answered with the nearest one; a verb
that needs heavy modules is imported only when it is called. Imported by commands only.
"""

import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

LEADING_FLAG = "--json"
LEADING_OPTION = "--config"


class LazyVerb(NamedTuple):
    """A verb whose module, which holds it as `command`, is imported when the verb is called."""

    module: str
    summary: str


class Noun(click.Group):
    """A group of verbs."""

    lazy: Mapping[str, LazyVerb] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        leading, rest = _leading(args)
        return super().parse_args(ctx, [*rest, *leading])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.lazy])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        verb: click.Command = importlib.import_module(self.lazy[cmd_name].module).command
        return verb

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.list_commands(ctx) and not args[0].startswith("-"):
            raise click.UsageError(f"no command {args[0]!r}{self._nearest(ctx, args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            lazy = self.lazy.get(name)
            rows.append((name, lazy.summary if lazy else self.commands[name].get_short_help_str()))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _nearest(self, ctx: click.Context, verb: str) -> str:
        close = difflib.get_close_matches(verb, self.list_commands(ctx), n=1)
        return f"; did you mean {close[0]!r}?" if close else ""


def _leading(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options before the verb that every verb has, and the rest."""
    leading: list[str] = []
    rest = list(args)
    while rest and rest[0].partition("=")[0] in (LEADING_FLAG, LEADING_OPTION):
        takes = 2 if rest[0] == LEADING_OPTION else 1
        leading += rest[:takes]
        rest = rest[takes:]
    return leading, rest

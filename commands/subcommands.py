"""Commands that have verbs: `sluice NOUN VERB`. Our additions to click.

Options may also stand before the verb. A misspelt verb is answered with the nearest one. A verb
that needs heavy modules is imported only when it is called. Imported by commands only.
"""

import difflib
import importlib
from collections.abc import Sequence
from typing import Any

import click

LEADING_FLAG = "--json"
LEADING_OPTION = "--config"


class Noun(click.Group):
    """A group of verbs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        leading, rest = _leading(args)
        return super().parse_args(ctx, [*rest, *leading])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        verb = args[0]
        mistyped = verb not in self.commands and not verb.startswith("-")
        if mistyped and not ctx.resilient_parsing:  # unless a shell is completing
            close = difflib.get_close_matches(verb, self.commands, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"no command {verb!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


class LazyVerb(click.Command):
    """A placeholder for the `command` of a module that is imported when the verb is called."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        super().__init__(name, help=summary, short_help=summary)
        self._module = module

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        return self._command().make_context(info_name, args, parent, **extra)

    def get_help(self, ctx: click.Context) -> str:
        command = self._command()
        own = click.Context(command, info_name=ctx.info_name, terminal_width=ctx.terminal_width)
        return command.get_help(own)

    def _command(self) -> click.Command:
        command: click.Command = importlib.import_module(self._module).command
        return command


def _leading(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options before the verb, of those that every verb has, and the rest."""
    leading: list[str] = []
    rest = list(args)
    while rest and rest[0].partition("=")[0] in (LEADING_FLAG, LEADING_OPTION):
        takes = 2 if rest[0] == LEADING_OPTION else 1
        leading += rest[:takes]
        rest = rest[takes:]
    return leading, rest

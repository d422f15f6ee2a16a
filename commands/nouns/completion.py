"""`completion`: the script that makes a shell complete commands, verbs, options and their values.

The shell then runs app.py with COMPLETE_VARIABLE set, and `answer` prints the words. Click does
both. The difference here is that a command's module is imported only to complete its own words.
"""

import importlib
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    shell_complete,
)

import app

PROGRAM = "sluice"


class _Zsh(ZshComplete):
    """Completion that runs the program named on the command line, so ./sluice need not be
    in PATH."""

    source_template = ZshComplete.source_template.replace(
        "    (( ! $+commands[%(prog_name)s] )) && return 1\n", ""
    ).replace("zsh_complete %(prog_name)s", "zsh_complete ${~words[1]}")


class _Fish(FishComplete):
    """The same as _Zsh."""

    source_template = FishComplete.source_template.replace(
        "(commandline -t) %(prog_name)s", "(commandline -t) (commandline -opc)[1]"
    )


_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": _Zsh, "fish": _Fish}


class _Root(click.Group):
    """The group of all commands. A command is imported when the words after its name are
    completed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(app.COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in app.COMMANDS:
            return None
        command: click.Command = importlib.import_module(app.module_of(cmd_name)).command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        return [
            CompletionItem(name, help=summary)
            for name, summary in app.COMMANDS.items()
            if name.startswith(incomplete)
        ]


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def command(shell: str) -> None:
    """Print the script that makes a shell complete commands, options and their values.

    \b
    bash:  eval "$(./sluice completion bash)"      in ~/.bashrc
    zsh:   eval "$(./sluice completion zsh)"       in ~/.zshrc, after compinit
    fish:  ./sluice completion fish > ~/.config/fish/completions/sluice.fish

    It works for every path of the program that ends in sluice.
    """
    complete = _SHELLS[shell](_Root(PROGRAM), {}, PROGRAM, app.COMPLETE_VARIABLE)
    click.echo(ShellComplete.source(complete))


def answer(instruction: str) -> int:
    """Answer a shell's COMPLETE_VARIABLE, such as bash_complete. Return the exit code."""
    return shell_complete(_Root(PROGRAM), {}, PROGRAM, app.COMPLETE_VARIABLE, instruction)

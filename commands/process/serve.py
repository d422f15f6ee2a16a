"""`serve` as the command line shows it: help and documentation.

app.py passes `serve` to commands/process/supervisor.py without click, which would stay in the
memory of the first process. This module is loaded only for `serve --help`.
"""

from pathlib import Path

import click

from commands.output import config_option, set_option
from commands.process import supervisor


@click.command()
@config_option
@set_option
def command(config: Path | None, overrides: tuple[str, ...]) -> int:
    """Run the gateway in the foreground.

    SIGTERM or SIGINT drains: calls in flight finish (within server.drain_timeout_s), exit code 0.
    A second signal, more than 1 s later, stops everything within 3 s, exit code 1. SIGHUP reloads
    the configuration and replaces the workers; an invalid one is logged and changes nothing.
    """
    chosen = ["--config", str(config)] if config else []
    settings = [part for override in overrides for part in ("--set", override)]
    return supervisor.main([*chosen, *settings])

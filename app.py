#!/usr/bin/env python3
"""The entry point: finds the command by its name and imports only that command's module.

The module is commands/nouns/<name>.py or commands/process/<name>.py. It contains `command` (click),
or `main(args) -> exit code` if its process must not load click. Exit codes: 0 done, 1 failed, 2
wrong usage, 3 configuration refused.
"""

import gc
import importlib
import os
import sys
from collections.abc import Mapping, Sequence

if sys.version_info < (3, 11):  # noqa: UP036 - before syntax that an older one cannot parse
    here = f"{sys.executable or 'this one'} is {sys.version_info[0]}.{sys.version_info[1]}"
    sys.exit(f"error: Python 3.11 or newer is needed; {here}")

COMMANDS: Mapping[str, str] = {
    "init": "create the files and the schema of a new gateway",
    "quickstart": "create a gateway with a first key and run it",
    "serve": "run the gateway",
    "demo": "run the demo upstream, which answers with made-up text",
    "config": "change a setting in gateway.toml",
    "check": "check the configuration, without network or database",
    "doctor": "check for problems: machine, store, channels, proxy in front",
    "migrate": "show or upgrade the database schema",
    "backup": "back up store and journals into one archive, even while gateways run",
    "restore": "restore a backup into an empty folder and verify it",
    "apply": "create or change users, groups, models, channels, plans and keys from a document",
    "export": "print that document from the store",
    "user": "list, show and edit users",
    "group": "list, show and edit groups",
    "model": "list, show and edit models",
    "channel": "list, show and edit channels",
    "plan": "list, show and edit plans",
    "subscription": "list, show and edit subscriptions of users to plans",
    "key": "create, list, disable and revoke API keys",
    "token": "create, list and revoke tokens of the Hub's JSON API",
    "wallet": "show, credit, debit and refund wallets",
    "code": "create, list, edit and redeem codes worth money",
    "usage": "show, export and verify usage records",
    "books": "verify wallets, ledger and records against each other",
    "explain": "show whether a key may call a model, and by which channels",
    "store": "show the hosts of the database, choose the writing host",
    "secrets": "replace the secrets of the installation while gateways run",
    "status": "show a running gateway and the state of its channels, or the settings",
    "client-config": "print the settings for a client program",
    "completion": "print the script that makes a shell complete commands",
    "nodes": "show every node of the store: version, clock, readiness, journal",
    "version": "print the version",
}
HIDDEN = ("worker", "hub")
PROCESSES = ("serve", "supervisor", "worker", "hub", "demo")

_OWN = ("adapters", "commands", "conf", "demo", "handlers", "operations", "store")
_HINT = "run ./sluice, or: make venv && .venv/bin/python app.py"

COMPLETE_VARIABLE = "_SLUICE_COMPLETE"  # set by the script of `completion`
SEE_HELP = "'sluice --help' lists the commands."


def main(args: Sequence[str]) -> int:
    """Run one command line. Return the exit code."""
    if COMPLETE_VARIABLE in os.environ:
        completion = importlib.import_module(module_of("completion"))
        return int(completion.answer(os.environ[COMPLETE_VARIABLE]))
    if not args:
        sys.stderr.write(_help())
        return 2
    name, *rest = args
    if name in ("--help", "-h", "help"):
        sys.stdout.write(_help())
        return 0
    name = {"--version": "version"}.get(name, name)
    if name.startswith("-"):
        form = f"sluice COMMAND {name} …"
        sys.stderr.write(f"error: options go after the command: {form}\n{SEE_HELP}\n")
        return 2
    if name not in COMMANDS and name not in HIDDEN:
        sys.stderr.write(f"error: no command {name!r}{_nearest(name)}\n{SEE_HELP}\n")
        return 2
    try:
        return _run(name, rest)
    except KeyboardInterrupt:
        return 130


def console() -> int:
    """Run the program `sluice` of an installed package."""
    return main(sys.argv[1:])


def module_of(name: str) -> str:
    """Return the module of a command."""
    folder = "process" if name in PROCESSES else "nouns"
    return f"commands.{folder}.{name.replace('-', '_')}"


def _run(name: str, args: Sequence[str]) -> int:
    module_name = name
    if name == "serve" and "--help" not in args:
        module_name = "supervisor"  # click would stay in the memory of the first process
    gc.disable()  # imports leave no garbage, and searching for it takes a sixth of their time
    try:
        module = importlib.import_module(module_of(module_name))
    except ModuleNotFoundError as error:
        return _missing(error)
    finally:
        gc.enable()
    if hasattr(module, "main"):
        return int(module.main(args))
    output = importlib.import_module("commands.output")
    return int(output.run(module.command, args, f"sluice {name}"))


def _missing(error: ModuleNotFoundError) -> int:
    package = (error.name or "").partition(".")[0]
    if package in _OWN:
        raise error  # a bug: no package to install
    sys.stderr.write(f"error: the Python package {package} is missing from {sys.prefix}; {_HINT}\n")
    return 1


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "Usage: sluice COMMAND [OPTIONS]",
            "",
            "A streaming-first gateway to language models.",
            "",
            *lines,
            "",
            "'sluice COMMAND --help' explains one. All take --config FILE; those that print data",
            "take --json. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 configuration refused.",
            "",
        ]
    )


def _nearest(name: str) -> str:
    difflib = importlib.import_module("difflib")
    close = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


if __name__ == "__main__":
    sys.exit(console())

"""`make docs`: the writer of the files that are generated from the code. A test compares them."""

import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

import app
from conf.configuration import sample_text
from conf.metrics import METRICS
from conf.settings import SECTIONS, SETTINGS, Settings
from conf.values import toml
from handlers.hub.openapi import document as openapi
from tools.docs import conversions, document, errors

ROOT = Path(__file__).resolve().parents[2]

_SETTINGS_HEAD = """\
# Settings

Made by `make docs` from the table in conf/settings.py; do not edit.

The file is that of `--config`, else of `SLUICE_CONFIG`, else `gateway.toml` in the current folder,
else `run/gateway.toml`, which `make run` makes. conf/gateway.toml is a sample and refused.
Precedence: `--set section.key=value` > environment `SLUICE_SECTION__KEY` > gateway.toml > default.
A list is a TOML array, also on the command line. Relative paths start at the folder of
gateway.toml. Unknown names are refused with the nearest known one. `SLUICE_SECRETS_FILE` replaces
secrets.toml in the folder of gateway.toml.
"""

_CLI_HEAD = """\
# Commands

Made by `make docs` from the commands themselves; do not edit.

`./sluice COMMAND` runs `app.py COMMAND` in the virtual environment. Exit codes: 0 done, 1 failed,
2 wrong usage, 3 configuration refused. With `--json` standard output is one JSON document.
"""

_METRICS_HEAD = """\
# Metrics

Made by `make docs` from the table in conf/metrics.py; do not edit.

`GET /metrics` of the ops port, in Prometheus' text form: all workers of a node in one scrape. A
counter does not fall when a worker is replaced, only when the gateway is restarted. No label names
a user or key; `model` names configured models only, others are `_other`, and so are paths that are
no endpoint. `status` and `error_code` are those of the usage record, `error_code` is empty when the
call succeeded. Dashboard: [conf/grafana.json](../conf/grafana.json); alerts:
[conf/alerts.yml](../conf/alerts.yml), with a runbook in [alerts.md](alerts.md).

| metric | kind | labels | meaning |
|---|---|---|---|
"""


def main() -> None:
    """Write the generated pages of docs/ and conf/gateway.toml."""
    for name, text in pages().items():
        (ROOT / name).write_text(text, encoding="utf-8")
        print(name)


def pages() -> Mapping[str, str]:
    """Return the generated files: path from the root -> text."""
    return {
        "docs/settings.md": _settings_page(),
        "docs/cli.md": _cli_page(),
        "docs/metrics.md": _metrics_page(),
        document.PAGE: document.page(),
        conversions.PAGE: conversions.page(),
        errors.PAGE: errors.page(),
        "docs/openapi.json": json.dumps(openapi.document(), ensure_ascii=False, indent=1) + "\n",
        "conf/gateway.toml": sample_text({}),
    }


def _settings_page() -> str:
    lines = [_SETTINGS_HEAD]
    for section in SECTIONS:
        title = (type(getattr(Settings(), section)).__doc__ or "").strip()
        lines += [f"## {section}", "", title, ""]
        lines += ["| setting | default | values | meaning |", "|---|---|---|---|"]
        for row in SETTINGS.values():
            if row.section == section:
                unit = f" {row.unit}" if row.unit else ""
                cells = (f"`{row.name}`", f"`{toml(row.default)}`{unit}", row.expected)
                lines.append(f"| {' | '.join(cells)} | {row.description} |")
        lines.append("")
    return "\n".join(lines)


def _metrics_page() -> str:
    rows = []
    for metric in METRICS.values():
        labels = ", ".join(metric.labels) or "–"
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.text} |\n")
    return _METRICS_HEAD + "".join(rows)


def _cli_page() -> str:
    lines = [_CLI_HEAD]
    for name in app.COMMANDS:
        module = importlib.import_module(app.module_of(name))
        for path, command in _all_of(name, module.command):
            context = click.Context(command, info_name=f"sluice {path}", terminal_width=90)
            heading = "###" if " " in path else "##"
            lines += [f"{heading} {path}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(lines)


def _all_of(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _all_of(f"{path} {name}", command.commands[name])


if __name__ == "__main__":
    main()

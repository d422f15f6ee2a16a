"""The findings of `doctor` and their output."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import click

from commands.output import coloured, printable
from conf.settings import mask

State = Literal["ok", "warning", "failed", "skipped"]

WIDTH = 80
_SHOWN = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "failed": ("FAILED", "red"),
    "skipped": ("skipped", "cyan"),
}
_STATE_WIDTH = 9
_CHECK_WIDTH = 12
_INDENT = _STATE_WIDTH + _CHECK_WIDTH


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one thing. `remedy` is empty if nothing has to be done."""

    check: str
    state: State
    message: str
    remedy: str = ""


def ok(check: str, message: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(check, "ok", mask(message))


def warning(check: str, message: str, remedy: str) -> Finding:
    """Return a finding about something that works, but not as well as it could."""
    return Finding(check, "warning", mask(message), mask(remedy))


def failed(check: str, message: str, remedy: str) -> Finding:
    """Return a finding about something that does not work."""
    return Finding(check, "failed", mask(message), mask(remedy))


def skipped(check: str, message: str, remedy: str = "") -> Finding:
    """Return a finding about something that was not checked."""
    return Finding(check, "skipped", mask(message), mask(remedy))


def show(findings: Sequence[Finding]) -> None:
    """Print each finding with its remedy below it."""
    indent = " " * _INDENT
    for finding in findings:
        word, colour = _SHOWN[finding.state]
        lines = _wrapped(finding.message) or [""]
        if finding.remedy:
            lines += _wrapped(f"remedy: {finding.remedy}")
        begin = coloured(word, colour) + " " * (_STATE_WIDTH - len(word))
        click.echo(f"{begin}{finding.check.ljust(_CHECK_WIDTH)}{lines[0]}")
        for line in lines[1:]:
            click.echo(f"{indent}{line}")


def _wrapped(text: str) -> list[str]:
    """Wrap a text; paths and addresses stay whole, so that they can be copied."""
    return textwrap.wrap(
        printable(text), WIDTH - _INDENT, break_long_words=False, break_on_hyphens=False
    )

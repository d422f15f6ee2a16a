"""What a check of `doctor` has found, and how it is shown."""

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
    """The state of one thing; `cure`: what to do about it, empty when nothing has to be done."""

    check: str
    state: State
    message: str
    cure: str = ""


def ok(check: str, message: str) -> Finding:
    """Nothing has to be done."""
    return Finding(check, "ok", mask(message))


def warning(check: str, message: str, cure: str) -> Finding:
    """It works, but not as well as it could."""
    return Finding(check, "warning", mask(message), mask(cure))


def failed(check: str, message: str, cure: str) -> Finding:
    """It does not work."""
    return Finding(check, "failed", mask(message), mask(cure))


def skipped(check: str, message: str, cure: str = "") -> Finding:
    """It was not looked at."""
    return Finding(check, "skipped", mask(message), mask(cure))


def show(findings: Sequence[Finding]) -> None:
    """Print each finding with its cure below it."""
    indent = " " * _INDENT
    for finding in findings:
        word, colour = _SHOWN[finding.state]
        lines = _wrapped(finding.message) or [""]
        if finding.cure:
            lines += _wrapped(f"cure: {finding.cure}")
        begin = coloured(word, colour) + " " * (_STATE_WIDTH - len(word))
        click.echo(f"{begin}{finding.check.ljust(_CHECK_WIDTH)}{lines[0]}")
        for line in lines[1:]:
            click.echo(f"{indent}{line}")


def _wrapped(text: str) -> list[str]:
    """Lines of a text; paths and addresses stay whole, so that they can be copied."""
    return textwrap.wrap(
        printable(text), WIDTH - _INDENT, break_long_words=False, break_on_hyphens=False
    )

"""The progress of long work: one line on standard error, on a terminal only. Imported by
commands.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from commands.output import printable

EACH_S = 0.1
DEFAULT_COLUMNS = 80
_CLEAR = "\r\x1b[K"


@contextmanager
def progress(as_json: bool) -> Iterator["Line"]:
    """Yield a line that shows the current step and is removed at the end. It shows nothing with
    --json, or if standard error is no terminal."""
    line = Line(shown=not as_json and sys.stderr.isatty())
    try:
        yield line
    finally:
        line.clear()


class Line:
    """The last line of the terminal, rewritten at most once every EACH_S."""

    def __init__(self, *, shown: bool) -> None:
        self._wanted = shown
        self._due_s = 0.0
        self._shown = False

    def tell(self, text: str) -> None:
        """Show the current step."""
        now_s = time.monotonic()
        if not self._wanted or now_s < self._due_s:
            return
        self._due_s = now_s + EACH_S
        self._shown = True
        sys.stderr.write(_CLEAR + printable(text)[: self._columns() - 1])
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line before other output."""
        if self._shown:
            self._shown = False
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or DEFAULT_COLUMNS
        except OSError:
            return DEFAULT_COLUMNS

"""Where the lines of a process go: standard error, or the file of `log.file`.

All processes of a node append to the same file; each line is one write, so lines do not mix.
"""

import os
import sys
from pathlib import Path

_MODE = 0o640


class StandardError:
    """Standard error, as it is when a line is written."""

    def write(self, line: bytes) -> None:
        """Raises OSError when nobody reads it any more."""
        stream = sys.stderr
        stream.buffer.write(line)
        stream.buffer.flush()

    def reopen(self) -> None:
        """There is nothing to open."""

    def close(self) -> None:
        """It is not ours to close."""


class LogFile:
    """A file that can be moved away and opened anew. While it cannot be opened, lines go to
    standard error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._other = StandardError()
        self._file = -1
        self.reopen()

    def write(self, line: bytes) -> None:
        """Raises OSError when the disk does not take it."""
        if self._file < 0:
            self._other.write(line)
            return
        os.write(self._file, line)

    def reopen(self) -> None:
        """Open the file of that name, which may be a new one. Never raises."""
        before = self._file
        try:
            self._file = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE
            )
        except OSError as error:
            self._file = -1
            cause = error.strerror or str(error)
            self._other.write(f"log.file {self._path} cannot be opened: {cause}\n".encode())
        if before >= 0:
            os.close(before)

    def close(self) -> None:
        """Lines that still come go to standard error. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


Sink = StandardError | LogFile


def sink_of(file: str) -> Sink:
    """The sink of `log.file`."""
    return LogFile(Path(file)) if file else StandardError()

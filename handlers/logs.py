"""Log output of a worker, written by a thread: a slow reader of stderr must not block the loop.

There are two sources: Python's logging (credentials are removed from its records), and blocks of
the lines of calls (callers' texts are cleaned when the lines are made).
"""

import contextlib
import logging
import queue
import select
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from handlers.telemetry.calls import LineForm

QUEUE_MAX = 10_000  # blocks and records waiting for stderr; further ones are dropped and counted
WRITE_MAX = select.PIPE_BUF  # a pipe takes this much at once, so lines of processes do not mix
STOP_WITHIN_S = 2  # to queue the end marker, and again to write what is queued
# Below warnings they log each request of curl, or repeat the lines of calls.
_QUIET = ("tornado.access", "tornado.curl_httpclient", "asyncio", "peewee")
_STOP, _REOPEN = object(), object()


class Sink(Protocol):
    """The target of log lines. `write` raises OSError."""

    def write(self, line: bytes) -> None: ...

    def reopen(self) -> None: ...


class LogThread(logging.Handler):
    """A thread that writes lines to `sink`, only whole ones in each write, and records after
    `clean`.

    Lines are written in blocks. Each write releases the interpreter's lock, for which a busy loop
    then has to wait, and a write for each line would make it wait once more for each call (ADR
    0026).
    """

    def __init__(self, form: LineForm, sink: Sink, clean: Callable[[str], str]) -> None:
        super().__init__()
        self._form = form
        self._sink = sink
        self._clean = clean
        self._queue: queue.Queue[object] = queue.Queue(QUEUE_MAX)
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self.dropped = 0

    def start(self, level: str) -> None:
        """Replace the handlers of the root logger and start the thread."""
        logging.getLogger().handlers[:] = [self]
        self.set_level(level)
        logging.captureWarnings(True)
        sys.excepthook = self._uncaught
        threading.excepthook = lambda args: self._uncaught(
            args.exc_type, args.exc_value, args.exc_traceback
        )
        self._thread.start()

    def set_level(self, level: str) -> None:
        """Log records of at least this level from now on."""
        least = logging.getLevelNamesMapping()[level.upper()]
        logging.getLogger().setLevel(least)
        for name in _QUIET:
            logging.getLogger(name).setLevel(max(least, logging.WARNING))

    def reopen(self) -> None:
        """Reopen the file: lines queued from now on go to a new one."""
        self._put(_REOPEN)

    def stop(self) -> None:
        """Write what is queued, then end the thread."""
        with contextlib.suppress(queue.Full):
            self._queue.put(_STOP, timeout=STOP_WITHIN_S)
        self._thread.join(STOP_WITHIN_S)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record of Python's logging."""
        self._put(self.format(record).encode("utf-8", "backslashreplace") + b"\n")

    def write(self, block: bytes) -> None:
        """Queue formatted lines."""
        self._put(block)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        message = _message_of(record)
        if record.exc_info:
            message += " | " + logging.Formatter().formatException(record.exc_info)
        at_ms = int(record.created) * 1000 + int(record.msecs)
        return self._form(at_ms, record.levelname.lower(), record.name, self._clean(message), {})

    def _uncaught(
        self,
        kind: type[BaseException],
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Log an uncaught exception at once, because the process may be about to end."""
        exc_info = (kind, error or kind(), trace)
        record = logging.LogRecord("sluice", logging.CRITICAL, "", 0, "uncaught", (), exc_info)
        self._write(self.format(record).encode("utf-8", "backslashreplace") + b"\n")

    def _put(self, item: object) -> None:
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self.dropped += 1

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is _STOP:
                return
            if item is _REOPEN:
                self._sink.reopen()
                continue
            assert isinstance(item, bytes)
            self._write(item)

    def _write(self, data: bytes) -> None:
        start = 0
        while start < len(data):
            end = data.rfind(b"\n", start, start + WRITE_MAX) + 1
            if not end:  # one line is longer than WRITE_MAX
                end = data.index(b"\n", start) + 1
            try:
                self._sink.write(data[start:end])
            except OSError:
                self.dropped += data.count(b"\n", start, end)  # nothing reads it; calls continue
            start = end


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        # Arguments do not fit the text. The code that logs them must not fail.
        return f"{record.msg} % {record.args}"

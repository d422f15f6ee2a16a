"""Log output of a worker, written by a thread: a slow reader of stderr must not stop the loop.

Two sources: Python's logging (records), and the lines of calls, which come in blocks.
"""

import contextlib
import logging
import queue
import sys
import threading
import time

from adapters.jsonio import dumps

QUEUE_MAX = 10_000  # blocks and records that wait for stderr; beyond it they are dropped, counted
STOP_WITHIN_S = 2  # for the lines that wait, and again for the last of them
_STOP = object()


class LogThread(logging.Handler):
    """Writes to stderr in a thread of its own."""

    def __init__(self, json_lines: bool) -> None:
        super().__init__()
        self._json_lines = json_lines
        self._queue: queue.Queue[object] = queue.Queue(QUEUE_MAX)
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self.dropped = 0

    def start(self, level: str) -> None:
        """Takes over the root logger."""
        root = logging.getLogger()
        root.handlers[:] = [self]
        root.setLevel(level.upper())
        # Its debug lines name curl's requests; tornado.access would double the calls' lines.
        for name in ("tornado.access", "tornado.curl_httpclient", "asyncio", "peewee"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._thread.start()

    def stop(self) -> None:
        """Writes what waits, then ends."""
        with contextlib.suppress(queue.Full):
            self._queue.put(_STOP, timeout=STOP_WITHIN_S)
        self._thread.join(STOP_WITHIN_S)

    def emit(self, record: logging.LogRecord) -> None:
        """A record of Python's logging."""
        self._put(self.format(record).encode("utf-8", "backslashreplace") + b"\n")

    def write(self, block: bytes) -> None:
        """Lines that are formatted already."""
        self._put(block)

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the record holds."""
        message = _message_of(record)
        if record.exc_info:
            message += " | " + logging.Formatter().formatException(record.exc_info)
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        at += f".{int(record.msecs):03d}Z"
        level = record.levelname.lower()
        if not self._json_lines:
            return f"{at} {level} {record.name}: " + " | ".join(message.splitlines())
        fields = {"at": at, "level": level, "logger": record.name, "message": message}
        return dumps(fields).decode()

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
            assert isinstance(item, bytes)
            try:
                sys.stderr.buffer.write(item)
                sys.stderr.buffer.flush()
            except OSError:
                self.dropped += 1  # nobody reads stderr any more; the calls go on


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        # Arguments that do not fit the text: whoever logs them must not fail.
        return f"{record.msg} % {record.args}"

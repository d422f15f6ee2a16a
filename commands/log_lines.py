"""Log lines of the supervisor: one line each on standard error, in the form that [log] says.

Standard library only. Messages of this process are its own words and numbers; nothing of a call, no
secret and no address with a password comes here.
"""

import json
import sys
import time
from typing import TextIO

_LEVELS = ("debug", "info", "warning", "error")


class Log:
    """Writes lines of at least one level, as JSON objects or as text."""

    def __init__(self, level: str, form: str, stream: TextIO = sys.stderr) -> None:
        self._least = _LEVELS.index(level)
        self._form = form
        self._stream = stream

    def info(self, message: str, **fields: object) -> None:
        self._line("info", message, fields)

    def warning(self, message: str, **fields: object) -> None:
        self._line("warning", message, fields)

    def error(self, message: str, **fields: object) -> None:
        self._line("error", message, fields)

    def _line(self, level: str, message: str, fields: dict[str, object]) -> None:
        if _LEVELS.index(level) < self._least:
            return
        seconds, ms = divmod(time.time_ns() // 1_000_000, 1000)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{ms:03d}Z"
        if self._form == "json":
            head = {"at": stamp, "level": level, "logger": "supervisor", "message": message}
            line = json.dumps(head | fields, ensure_ascii=False, separators=(",", ":"))
        else:
            told = "".join(f" {name}={value}" for name, value in fields.items())
            line = f"{stamp} {level.upper():<7} supervisor: {message}{told}"
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except OSError:
            pass  # a full disk or a closed terminal must not end the gateway

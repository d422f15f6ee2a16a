"""Log lines: the two forms that [log] knows, and the lines of the supervisor.

Every line of every process has one of these forms: JSON objects, or text as `AT LEVEL LOGGER:
MESSAGE NAME=VALUE …`. The worker hands them to its log thread, which knows none. Standard library
only. Messages of the supervisor are its own words and numbers; credentials are taken out of them
all the same.
"""

import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType

from commands.process.logs.redaction import redact
from commands.process.logs.sink import Sink, StandardError

LineForm = Callable[[int, str, str, str, Mapping[str, object]], str]
"""at_ms, level, logger, message, further fields -> a line without its end."""

LEVELS = ("debug", "info", "warning", "error")


def json_line(
    at_ms: int, level: str, logger: str, message: str, fields: Mapping[str, object]
) -> str:
    """One JSON object; ASCII, so that nothing in it can end the line."""
    head = {"at": stamp(at_ms), "level": level, "logger": logger, "message": message}
    return json.dumps({**head, **fields}, separators=(",", ":"))


def text_line(
    at_ms: int, level: str, logger: str, message: str, fields: Mapping[str, object]
) -> str:
    """For people; a field that is None is left out, a value of several words is quoted."""
    told = [" | ".join(message.splitlines())] if message else []
    told += [f"{name}={_word(value)}" for name, value in fields.items() if value is not None]
    return f"{stamp(at_ms)} {level} {logger}: {' '.join(told)}"


FORMS: Mapping[str, LineForm] = {"json": json_line, "text": text_line}
"""By `log.format`."""


def stamp(at_ms: int) -> str:
    """A time in milliseconds as RFC 3339 UTC."""
    seconds, ms = divmod(at_ms, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{ms:03d}Z"


def _clean(value: object) -> object:
    return redact(value) if isinstance(value, str) else value


def _word(value: object) -> str:
    """The value as one word: a model's name is the caller's and could hold a line like ours."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    plain = text.isprintable() and " " not in text and '"' not in text and text != ""
    return text if plain else json.dumps(text)


class Log:
    """Writes lines of at least one level, as JSON objects or as text."""

    def __init__(self, level: str, form: str, sink: Sink | None = None) -> None:
        self.level = level
        self._form = FORMS[form]
        self._sink = sink or StandardError()

    def renew(self, level: str, form: str, sink: Sink) -> None:
        """Write as changed settings want it."""
        self._sink.close()
        self.level, self._form, self._sink = level, FORMS[form], sink

    def reopen(self) -> None:
        """The file was moved away: write to a new one."""
        self._sink.reopen()

    def info(self, message: str, **fields: object) -> None:
        self._line("info", message, fields)

    def warning(self, message: str, **fields: object) -> None:
        self._line("warning", message, fields)

    def error(self, message: str, **fields: object) -> None:
        self._line("error", message, fields)

    def take_uncaught(self) -> None:
        """What nobody has caught, in any thread, becomes a line as well."""
        sys.excepthook = self._uncaught
        threading.excepthook = lambda args: self._uncaught(
            args.exc_type, args.exc_value, args.exc_traceback
        )

    def _uncaught(
        self,
        kind: type[BaseException],
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        told = "".join(traceback.format_exception(kind, error, trace))
        self._line("error", f"uncaught: {told.rstrip()}", {})

    def _line(self, level: str, message: str, fields: Mapping[str, object]) -> None:
        if LEVELS.index(level) < LEVELS.index(self.level):
            return
        at_ms, shown = time.time_ns() // 1_000_000, {n: _clean(v) for n, v in fields.items()}
        line = self._form(at_ms, level, "supervisor", redact(message), shown)
        try:
            self._sink.write(line.encode("utf-8", "backslashreplace") + b"\n")
        except OSError:
            pass  # a full disk or a closed terminal must not end the gateway

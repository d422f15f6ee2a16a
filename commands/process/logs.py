"""Log lines: their two formats, their destination, and the masking of credentials.

Every line of every process is either a JSON object or text, `AT LEVEL LOGGER: MESSAGE NAME=VALUE
…`. The worker passes them to its log thread, which does not know the formats. All processes of a
node append to the same file, and each line is a single write, so lines do not mix. No code logs a
credential on purpose. The mask is for foreign texts in a line: an exception's message, a URL, a
model's name. Standard library only.
"""

import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType

MASK = "***"

_SHAPES = re.compile(
    r"""
      (?P<scheme>\b(?:bearer|basic)(?:\s|%20|\+)+)[\w.~+/=*-]{4,}  # as in Authorization
    | (?P<name>\b(?:x-api-key|x-goog-api-key|api[-_]?key|authorization|proxy-authorization|cookie
        |set-cookie|password|passwd|pepper|secret|token)\b\\*["']?\s*[:=]\s*(?:b?\\*["'])?)
        (?!(?:bearer|basic)\b)[^\s"'\\,;&)}\]]{4,}
    | (?P<query>[?&](?:key|api_key|access_token|token)=)[^&\s"'\\]+
    | (?P<address>://)[^/@\s"'\\]+(?=@)  # user and password of a URL
    | \b(?:sk|pk|rk|slt|ghp|glpat|xai|hf|nvapi|pplx|gsk)[-_][\w.*-]{6,}
    | \bAIza[\w-]{10,} | \bAKIA[A-Z0-9]{12,} | \bya29\.[\w.-]+ | \beyJ[\w-]{8,}\.[\w.-]+
    """,
    re.VERBOSE | re.IGNORECASE,
)


def redact(text: str) -> str:
    """Replace every credential in a text by `***`."""
    return _SHAPES.sub(_masked, text)


def _masked(match: re.Match[str]) -> str:
    return (match[match.lastgroup] if match.lastgroup else "") + MASK


_MODE = 0o640


class LogFile:
    """The file of `log.file`, which can be moved away and reopened. Lines go to standard error if
    the setting is empty, or while the file cannot be opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self.reopen()

    def write(self, line: bytes) -> None:
        """Write a line. Raises OSError if the disk refuses it or nothing reads standard error."""
        if self._file < 0:
            stream = sys.stderr.buffer  # looked up each time, because it can be replaced
            stream.write(line)
            stream.flush()
        else:
            os.write(self._file, line)

    def reopen(self) -> None:
        """Open the file at the path again, which may be a new one. Never raises."""
        if not self._path:
            return
        before = self._file
        try:
            self._file = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE
            )
        except OSError as error:
            self._file = -1
            cause = error.strerror or str(error)
            self.write(f"log.file {self._path} cannot be opened: {cause}\n".encode())
        if before >= 0:
            os.close(before)

    def close(self) -> None:
        """Close the file; later lines go to standard error. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


LineForm = Callable[[int, str, str, str, Mapping[str, object]], str]
"""(at_ms, level, logger, message, further fields) -> a line without its end."""

LEVELS = ("debug", "info", "warning", "error")


def json_line(
    at_ms: int, level: str, logger: str, message: str, fields: Mapping[str, object]
) -> str:
    """Format a line as one JSON object; ASCII, so that nothing in it can end the line."""
    head = {"at": stamp(at_ms), "level": level, "logger": logger, "message": message}
    return json.dumps({**head, **fields}, separators=(",", ":"))


def text_line(
    at_ms: int, level: str, logger: str, message: str, fields: Mapping[str, object]
) -> str:
    """Format a line for people; None fields are left out, values of several words are quoted."""
    words = [" | ".join(message.splitlines())] if message else []
    words += [f"{name}={_word(value)}" for name, value in fields.items() if value is not None]
    return f"{stamp(at_ms)} {level} {logger}: {' '.join(words)}"


FORMS: Mapping[str, LineForm] = {"json": json_line, "text": text_line}
"""The formats, by the values of `log.format`."""


def stamp(at_ms: int) -> str:
    """Format a time in milliseconds as RFC 3339 UTC."""
    seconds, ms = divmod(at_ms, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{ms:03d}Z"


def _word(value: object) -> str:
    """Return a value as one word. A model's name comes from the caller and could imitate
    log lines."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    plain = text.isprintable() and " " not in text and '"' not in text and text != ""
    return text if plain else json.dumps(text)


class Log:
    """A log that writes lines of at least one level, as JSON objects or as text."""

    def __init__(self, level: str, form: str, sink: LogFile) -> None:
        self.level, self._form, self._sink = level, FORMS[form], sink

    def renew(self, level: str, form: str, sink: LogFile) -> None:
        self._sink.close()
        self.level, self._form, self._sink = level, FORMS[form], sink

    def reopen(self) -> None:
        """Reopen the file after it was moved away."""
        self._sink.reopen()

    def info(self, message: str, **fields: object) -> None:
        self._line("info", message, fields)

    def warning(self, message: str, **fields: object) -> None:
        self._line("warning", message, fields)

    def error(self, message: str, **fields: object) -> None:
        self._line("error", message, fields)

    def take_uncaught(self) -> None:
        """Log uncaught exceptions of all threads."""
        sys.excepthook = self._uncaught
        threading.excepthook = lambda args: self._uncaught(
            args.exc_type, args.exc_value, args.exc_traceback
        )

    def _uncaught(
        self, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
    ) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        self._line("error", f"uncaught: {text.rstrip()}", {})

    def _line(self, level: str, message: str, fields: Mapping[str, object]) -> None:
        if LEVELS.index(level) < LEVELS.index(self.level):
            return
        at_ms = time.time_ns() // 1_000_000
        masked = {n: redact(v) if isinstance(v, str) else v for n, v in fields.items()}
        line = self._form(at_ms, level, "supervisor", redact(message), masked)
        try:
            self._sink.write(line.encode("utf-8", "backslashreplace") + b"\n")
        except OSError:
            pass  # a full disk or a closed terminal must not end the gateway

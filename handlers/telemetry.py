"""What a worker says of itself: one log line a call, and its state for the supervisor.

Lines of calls are gathered and handed to the log's thread once a second, since a write for each
would cost a call more than its settlement.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from adapters.jsonio import dumps
from store.pricing import format_money
from store.usage import UsageRecord

REPORT_MAX_BYTES = 4096  # a pipe takes so much in one piece
LINES_MAX = 20_000  # call lines of one second; more are dropped and counted

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Telemetry:
    """Counts and lines of one worker. `report_fd` is the pipe to the supervisor."""

    report_fd: int
    write: Callable[[bytes], None] | None  # None: calls are not logged
    json_lines: bool
    dropped: int = 0
    _lines: list[bytes] = field(default_factory=list)

    def call_ended(self, record: UsageRecord) -> None:
        """A call is settled: its line joins the next write."""
        if self.write is None:
            return
        if len(self._lines) >= LINES_MAX:
            self.dropped += 1
            return
        self._lines.append(_json_line(record) if self.json_lines else _text_line(record))

    def flush(self) -> None:
        """Hands the gathered lines on."""
        if self._lines and self.write is not None:
            self.write(b"".join(self._lines))
            self._lines.clear()

    def report(self, state: dict[str, object]) -> None:
        """Tells the supervisor; a report that does not fit into the pipe now is not repeated."""
        line = dumps(state) + b"\n"
        if len(line) > REPORT_MAX_BYTES:
            raise ValueError("a report must fit into one write of the pipe")
        try:
            os.write(self.report_fd, line)
        except BlockingIOError:
            self.dropped += 1
        except BrokenPipeError:
            return  # the supervisor is gone; the end of stdin starts the drain


def _fields(record: UsageRecord) -> dict[str, object]:
    return {
        "event": "call",
        "id": record.id,
        "user": record.user,
        "key_id": record.key_id,
        "endpoint": record.endpoint,
        "model": record.model,
        "channel": record.channel,
        "stream": record.stream,
        "status": record.status,
        "outcome": record.outcome,
        "error_code": record.error_code,
        "input_tokens": record.input_tokens,
        "output_tokens": record.output_tokens,
        "cost": format_money(record.cost_nanos),
        "ttft_ms": record.ttft_ms,
        "duration_ms": record.duration_ms,
        "attempts": len(record.attempts),
        "client_ip": record.client_ip,
    }


def _json_line(record: UsageRecord) -> bytes:
    try:
        return _encode(_fields(record)) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate
        return dumps(_fields(record)) + b"\n"


def _text_line(record: UsageRecord) -> bytes:
    fields = _fields(record).items()
    pairs = [f"{name}={_one_word(value)}" for name, value in fields if value is not None]
    return (" ".join(pairs) + "\n").encode("utf-8", "backslashreplace")


def _one_word(value: object) -> str:
    """The value as one word: a model's name is the caller's and could hold a line like ours."""
    text = str(value)
    return text if text.isprintable() and " " not in text else dumps(text).decode()

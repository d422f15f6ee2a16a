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


class _Line(msgspec.Struct, gc=False):
    """What a call's line says, in this order."""

    event: str
    id: str
    user: str
    key_id: str
    endpoint: str
    model: str | None
    channel: str | None
    stream: bool | None
    status: int | None
    outcome: str
    error_code: str | None
    input_tokens: int
    output_tokens: int
    cost: str
    ttft_ms: int | None
    duration_ms: int | None
    attempts: int
    client_ip: str | None


def _line_of(record: UsageRecord) -> _Line:
    # By position: to match the names takes longer than all the rest.
    return _Line(
        "call",
        record.id,
        record.user,
        record.key_id,
        record.endpoint,
        record.model,
        record.channel,
        record.stream,
        record.status,
        record.outcome,
        record.error_code,
        record.input_tokens,
        record.output_tokens,
        format_money(record.cost_nanos),
        record.ttft_ms,
        record.duration_ms,
        len(record.attempts),
        record.client_ip,
    )


def _json_line(record: UsageRecord) -> bytes:
    line = _line_of(record)
    try:
        return _encode(line) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate
        return dumps(msgspec.structs.asdict(line)) + b"\n"


def _text_line(record: UsageRecord) -> bytes:
    fields = msgspec.structs.asdict(_line_of(record)).items()
    pairs = [f"{name}={_one_word(value)}" for name, value in fields if value is not None]
    return (" ".join(pairs) + "\n").encode("utf-8", "backslashreplace")


def _one_word(value: object) -> str:
    """The value as one word: a model's name is the caller's and could hold a line like ours."""
    text = str(value)
    return text if text.isprintable() and " " not in text else dumps(text).decode()

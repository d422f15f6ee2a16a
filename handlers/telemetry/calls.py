"""The telemetry of each call: its log line, its metrics and spans.

Lines are made many at a time. One at a time they would take several times as long, because the rest
of each call fills the processor's caches. They are passed to the log's thread once a second,
because a write for each would cost a call more than its settlement.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import msgspec

from adapters.json.jsonio import dumps
from conf.metrics import OTHER
from handlers.telemetry.metrics import Metrics, PrivateTable
from handlers.telemetry.trace import Trace
from store.values.pricing import format_money
from store.values.usage_record import UsageRecord

LINES_MAX = 20_000  # in one second; further ones are dropped and counted
ENDED_MAX = 64  # calls whose lines are made together
UNRECORDED_MAX = 20  # lines in one second for requests without a usage record

log = logging.getLogger("sluice.http")

LineForm = Callable[[int, str, str, str, Mapping[str, object]], str]
"""(at_ms, level, logger, message, further fields) -> a line without its line end."""

_encode = msgspec.json.Encoder().encode


class Spans(Protocol):
    """The receiver of calls that become spans. Never blocks."""

    def put(self, record: UsageRecord, trace: Trace) -> None: ...


class Unrecorded(msgspec.Struct, frozen=True):
    """A refused request without a usage record: it had no known key or no endpoint. `endpoint` is
    None for an arbitrary path."""

    request_id: str
    family: str
    endpoint: str | None
    status: int
    error_code: str
    outcome: str
    client_ip: str


@lru_cache(maxsize=4)
def _seconds_text(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _stamp(at_ms: int) -> str:
    """Return the time as RFC 3339, UTC, with milliseconds."""
    second, ms = divmod(at_ms, 1000)
    return f"{_seconds_text(second)}.{ms:03d}Z"


@dataclass(slots=True)
class Telemetry:
    """The log lines, metrics and spans of one worker."""

    write: Callable[[bytes], None] | None = None  # None: calls are not logged
    text: LineForm | None = None  # None: lines are JSON
    clean: Callable[[str], str] = str  # removes credentials from texts of callers
    dropped: int = 0
    metrics: Metrics = field(default_factory=lambda: Metrics(PrivateTable()))
    spans: Spans | None = None  # None: calls are not exported
    _ended: list[tuple[UsageRecord, str | None]] = field(default_factory=list)  # lines to make
    _lines: list[bytes] = field(default_factory=list)
    _unrecorded: int = 0  # in this second

    def call_ended(
        self, record: UsageRecord, own_us: int = 0, trace: Trace | None = None, *, line: bool = True
    ) -> None:
        """Count a settled call, and queue its spans and, if `line`, its log line."""
        model = self.metrics.call_ended(record, own_us)
        if trace is not None and trace.span_id and self.spans is not None:
            self.spans.put(record, trace)
        if line and self.write is not None:
            self._ended.append((record, model))
            if len(self._ended) >= ENDED_MAX:
                self._make_lines()

    def _make_lines(self) -> None:
        ended, self._ended = self._ended, []
        room = LINES_MAX - len(self._lines)
        self.dropped += max(0, len(ended) - room)
        for record, model in ended[:room]:
            at_ms = record.call.started_ms + (record.duration_ms or 0)
            if model is OTHER:  # any text of the caller
                requested = record.call.model
                model = self.clean(requested) if requested is not None else None
            line = _line_of(record, model, _stamp(at_ms))
            text = _json_line(line) if self.text is None else self._text_line(line, at_ms)
            self._lines.append(text)

    def not_recorded(self, one: Unrecorded, at_ms: int) -> None:
        """Add the log line of a refused request without a record, so that its id can be traced.
        Only the first ones of each second get one, since any client can send such requests."""
        self.metrics.not_recorded(one.family, one.endpoint, one.status, one.error_code)
        self._unrecorded += 1
        if self.write is None or self._unrecorded > UNRECORDED_MAX:
            return
        self._make_lines()  # lines of earlier calls
        line = _Line(_stamp(at_ms), **msgspec.structs.asdict(one))
        self._lines.append(_json_line(line) if self.text is None else self._text_line(line, at_ms))

    def refused_without_line(self, count: int, record: UsageRecord) -> None:
        """Log how many refused calls of a key in a past minute have no line. `record`: the last of
        them."""
        call = record.call
        text = "%d more calls of key %s (%s) were refused in the minute before; the last: %s"
        log.info(text, count, call.key_id, call.user, record.error_code)

    def flush(self) -> None:
        """Pass the collected lines to the log. Called once a second."""
        self._make_lines()
        more, self._unrecorded = self._unrecorded - UNRECORDED_MAX, 0
        if more > 0:
            log.info("%d more requests without a known key or endpoint were refused", more)
        if self._lines and self.write is not None:
            self._lines.append(b"")
            self.write(b"\n".join(self._lines))
            self._lines.clear()

    def _text_line(self, line: "_Line", at_ms: int) -> bytes:
        assert self.text is not None
        fields = msgspec.structs.asdict(line)
        level, event = fields.pop("level"), fields.pop("event")
        del fields["at"]
        return self.text(at_ms, level, event, "", fields).encode("utf-8", "backslashreplace")


class _Line(msgspec.Struct, gc=False):
    """The fields of a call's line, in their order."""

    at: str
    level: str = "info"
    event: str = "call"
    request_id: str = ""
    user: str | None = None
    key_id: str | None = None
    family: str = ""
    endpoint: str | None = None
    model: str | None = None
    group: str | None = None
    channel: str | None = None
    status: int | None = None
    error_code: str | None = None
    outcome: str = ""
    stream: bool | None = None
    attempts: int = 0
    ttft_ms: int | None = None
    duration_ms: int | None = None
    tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: str = "0"
    tier: str | None = None
    client_ip: str | None = None
    trace_id: str | None = None


def _line_of(record: UsageRecord, model: str | None, at: str) -> _Line:
    call, usage = record.call, record.usage
    # By position: keywords would take longer than everything else.
    return _Line(
        at,
        "info",
        "call",
        record.id,
        call.user,
        call.key_id,
        call.family,
        call.endpoint,
        model,
        call.group,
        record.channel,
        record.status,
        record.error_code,
        record.outcome,
        call.stream,
        len(record.attempts),
        record.ttft_ms,
        record.duration_ms,
        usage.inputs + usage.outputs,
        usage.input_tokens,
        usage.output_tokens,
        format_money(record.cost_nanos),
        record.receipt.served.tier or None,
        call.client_ip,
        call.trace_id,
    )


def _json_line(line: _Line) -> bytes:
    try:
        return _encode(line)
    except UnicodeEncodeError:  # a lone surrogate
        return dumps(msgspec.structs.asdict(line))

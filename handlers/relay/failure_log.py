"""The log of channels that start to fail: the first failure after a success.

A line for every failed call would be repeated a thousand times during an outage; the usage records
have each failure. Sans-io: the clock (monotonic, s) is an argument. Imported by the attempts.
"""

import logging
from dataclasses import dataclass, field

from adapters.faults import Condition, Fault
from adapters.json.jsonio import dumps
from adapters.upstream_errors.echo import without_echo
from handlers.relay.call import Attempt, Call
from store.catalog.catalog import Channel

log = logging.getLogger("sluice.channel")

LINE_EVERY_S = 10.0  # at most one line for each channel in this time
FAILING_MAX = 20_000  # channels × models; beyond it all are forgotten, and may be logged again


@dataclass(slots=True)
class FailureLog:
    """The pairs of channel and model whose failure was logged."""

    failing: set[tuple[str, str]] = field(default_factory=set)
    _logged_s: dict[str, float] = field(default_factory=dict)

    def answered(self, channel: Channel, model: str) -> None:
        """Note a success, so that the next failure is logged again."""
        self.failing.discard((channel.id, model))

    def failed(self, call: Call, attempt: Attempt, fault: Fault, now_s: float) -> None:
        """Log an attempt that failed with a masked fault. Faults of the client are not logged."""
        channel, model = attempt.candidate.channel, call.requested.model or ""
        if fault.blame == "client" or (channel.id, model) in self.failing:
            return
        if now_s - self._logged_s.get(channel.id, -LINE_EVERY_S) < LINE_EVERY_S:
            return
        if len(self.failing) >= FAILING_MAX:
            self.failing.clear()
            self._logged_s.clear()
        self.failing.add((channel.id, model))
        self._logged_s[channel.id] = now_s
        misconfigured = fault.condition is Condition.CHANNEL_MISCONFIGURED
        level = logging.ERROR if misconfigured else logging.WARNING
        log.log(level, _line(call, attempt, fault))


def _line(call: Call, attempt: Attempt, fault: Fault) -> str:
    channel, record = attempt.candidate.channel, call.outcome.attempts[-1]
    route = channel.route
    fields: dict[str, object] = {
        "channel": channel.name,
        "model": call.requested.model,
        "upstream_model": attempt.upstream_model,
        "upstream_status": record.status,
        "error": record.error or fault.code,
        "ca_file": route.ca_file if route and record.error == "ca_file" else None,
        "request_id": call.id,
        "detail": _detail(call, attempt, fault),
    }
    pairs = (f"{name}={_word(value)}" for name, value in fields.items() if value is not None)
    return f"channel fails: {' '.join(pairs)}"


def _detail(call: Call, attempt: Attempt, fault: Fault) -> str | None:
    """Return the upstream's message without the caller's own text, which vendors repeat in
    errors."""
    if fault.operator_message is None or not fault.quotes_upstream:
        return fault.operator_message
    body = call.content.body
    if not body and not call.head.operation.stored:
        return None  # the answer was accepted and the body freed, so there is no text to compare
    names = (call.requested.model or "", attempt.upstream_model or "")
    return without_echo(fault.operator_message, body, names)


def _word(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and '"' not in text else _quoted(text)


def _quoted(text: str) -> str:
    return dumps(text).decode()

"""The periodic work for the calls in flight: heartbeats, commits, marks, larger holds.

One sweep a second serves all calls, so that an open stream needs no timer of its own. Imported by
the pipeline.
"""

import time
from dataclasses import dataclass

from conf.settings import UpstreamSettings
from handlers.relay.call import Call
from handlers.relay.holding import Holding
from handlers.relay.live import LiveCalls, LiveStream
from handlers.relay.pump import CONTENT_TYPES
from handlers.relay.records import Records
from handlers.relay.routing.health import Health
from handlers.relay.running import ClientGone


@dataclass(slots=True)
class Sweep:
    """The sweep of one worker's calls."""

    limits: UpstreamSettings
    live: LiveCalls
    health: Health
    holding: Holding
    records: Records

    def run(self, now_s: int) -> None:
        """Do the work that is due at `now_s`, of a monotonic clock. Called once a second."""
        self.live.now_s = now_s
        for stream in self.live.open_streams():
            self._look_at(stream, now_s)
        for call in self.live.plain_calls():
            self._note_waiting(call)

    def _look_at(self, stream: LiveStream, now_s: int) -> None:
        pump, connection, limits = stream.pump, stream.downstream.connection, self.limits
        if pump.last_sent_s < 0:
            pump.last_sent_s = now_s
        if not connection.head_sent:
            is_due = limits.commit_after_s and now_s - stream.started_s >= limits.commit_after_s
            if is_due and stream.call.head.operation.framing != "bytes":  # it has no heartbeats
                _commit(stream)
                pump.last_sent_s = now_s
        elif limits.heartbeat_s:
            pump.heartbeat(now_s, limits.heartbeat_s)
        if not pump.accepted:
            self._note_waiting(stream.call)
        if self._is_stuck(stream, now_s):
            # It holds an upstream connection and money, and may never continue.
            connection.drop()
            stream.call.running.interrupt(ClientGone())
        units = pump.output_units
        if units > stream.marked_units:
            self.holding.follow(stream, units - stream.marked_units)
            stream.marked_units = units
            self.records.mark(stream.call, units)

    def _note_waiting(self, call: Call) -> None:
        """Report a late answer to the circuit breaker."""
        attempt = call.attempt
        if attempt is not None and attempt.health is not None:
            self.health.late(attempt.health, time.monotonic())

    def _is_stuck(self, stream: LiveStream, now_s: int) -> bool:
        """Return whether a client under back-pressure has read nothing for
        `upstream.idle_timeout_s`."""
        connection = stream.downstream.connection
        unsent_bytes = connection.unsent_bytes if connection.full else 0
        if unsent_bytes == 0 or unsent_bytes != stream.unsent_bytes:
            stream.unsent_bytes, stream.stuck_since_s = unsent_bytes, now_s
            return False
        return now_s - stream.stuck_since_s >= self.limits.idle_timeout_s


def _commit(stream: LiveStream) -> None:
    """Send the head of a stream although no answer is accepted yet."""
    call = stream.call
    losses = call.attempt.loss_headers if call.attempt is not None else ()
    content_type = CONTENT_TYPES[call.head.operation.framing]
    stream.pump.commit((("Content-Type", content_type), *losses))

"""The calls in flight: what is due for them each second, and at the end of a drain.

One sweep a second serves all of them: an open stream needs no timer of its own.
"""

import time
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from conf.settings import UpstreamSettings
from handlers.relay.call import Call, ClientGone, DrainForced
from handlers.relay.downstream import Downstream
from handlers.relay.pump import StreamPump
from handlers.relay.routing.breaker import Trial


class LiveStream(Struct):
    """A streaming call's parts, and since when its client has read nothing."""

    call: Call
    pump: StreamPump
    downstream: Downstream
    unsent_bytes: int = 0
    stuck_since_s: int = 0


def _ignore(*_: object) -> None:
    """Nobody is to be told."""


class LiveCalls:
    """Registry of calls in flight; `sweep` is called once a second with a monotonic clock in s.

    In each sweep `on_waiting` is called with every call whose answer is not accepted yet; of a
    stream that has grown `on_grown` with the number of new tokens, then `on_mark` with all of them.
    """

    def __init__(self, limits: UpstreamSettings) -> None:
        self._limits = limits
        self._calls: dict[str, Call] = {}
        self._streams: dict[str, LiveStream] = {}
        self.on_waiting: Callable[[Call], None] = _ignore
        self.on_grown: Callable[[Call, StreamPump, int], None] = _ignore
        self.on_mark: Callable[[Call, int], None] = _ignore
        self.now_s = int(time.monotonic())  # the loop's clock

    @property
    def calls(self) -> int:
        """Calls in flight, streams among them."""
        return len(self._calls)

    @property
    def streams(self) -> int:
        """Streaming calls in flight."""
        return len(self._streams)

    def enter(self, call: Call) -> None:
        """The call is in flight from now on."""
        self._calls[call.arrival.call_id] = call

    def stream(self, stream: LiveStream) -> None:
        """The call streams: heartbeats, commit and marks are due from now on."""
        stream.pump.started_s = self.now_s
        self._streams[stream.call.arrival.call_id] = stream

    def leave(self, call: Call) -> None:
        """The call is over. Idempotent."""
        self._calls.pop(call.arrival.call_id, None)
        self._streams.pop(call.arrival.call_id, None)

    def trials(self) -> Iterator[Trial]:
        """The attempts in flight."""
        attempts = (call.attempt for call in self._calls.values())
        return (one.trial for one in attempts if one is not None and one.trial is not None)

    def running_at(self, channels: Mapping[str, str]) -> dict[str, int]:
        """Calls in flight at these channels (id -> name), by name; without those that have none."""
        counts: dict[str, int] = {}
        for call in self._calls.values():
            attempt = call.tried
            name = channels.get(attempt.candidate.channel.id) if attempt is not None else None
            if name is not None:
                counts[name] = counts.get(name, 0) + 1
        return counts

    def force_end(self) -> None:
        """Interrupts every call in flight: the drain's time is up."""
        for call in list(self._calls.values()):
            call.interrupt(DrainForced())

    def sweep(self, now_s: int) -> None:
        """Commits, heartbeats and journal marks that are due at `now_s`."""
        self.now_s = now_s
        for stream in list(self._streams.values()):
            self._sweep_stream(stream, now_s)
        for call in self._calls.values():
            if not call.stream:
                self.on_waiting(call)

    def _sweep_stream(self, stream: LiveStream, now_s: int) -> None:
        pump, limits = stream.pump, self._limits
        if pump.last_sent_s < 0:
            pump.last_sent_s = now_s
        if not stream.downstream.head_sent:
            if limits.commit_after_s and now_s - pump.started_s >= limits.commit_after_s:
                pump.commit()
                pump.last_sent_s = now_s
        elif limits.heartbeat_s:
            pump.heartbeat(now_s, limits.heartbeat_s)
        if not pump.accepted:
            self.on_waiting(stream.call)
        if self._is_stuck(stream, now_s):
            # It holds an upstream connection and money, and may never go on.
            stream.downstream.drop()
            stream.call.interrupt(ClientGone())
        units = pump.output_units
        if units > pump.marked_units:
            self.on_grown(stream.call, pump, units - pump.marked_units)
            pump.marked_units = units
            self.on_mark(stream.call, units)

    def _is_stuck(self, stream: LiveStream, now_s: int) -> bool:
        """Whether a client under back-pressure has read nothing for `upstream.idle_timeout_s`."""
        unsent_bytes = stream.downstream.unsent_bytes if stream.downstream.blocked else 0
        if unsent_bytes == 0 or unsent_bytes != stream.unsent_bytes:
            stream.unsent_bytes, stream.stuck_since_s = unsent_bytes, now_s
            return False
        return now_s - stream.stuck_since_s >= self._limits.idle_timeout_s

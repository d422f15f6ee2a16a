"""The registry of a worker's calls in flight. Their periodic work is in sweep.py."""

import time
from collections.abc import Iterator, Mapping

from msgspec import Struct

from handlers.relay.call import Call
from handlers.relay.downstream import Downstream
from handlers.relay.pump import StreamPump
from handlers.relay.routing.breaker import AttemptHealth
from handlers.relay.running import DrainForced


class LiveStream(Struct, eq=False):
    """A streaming call, and the state that the sweeps keep about it."""

    call: Call
    pump: StreamPump
    downstream: Downstream
    started_s: int
    unsent_bytes: int = 0
    stuck_since_s: int = 0  # when the client last read anything
    marked_units: int = 0  # output tokens noted in the journal
    covered_units: int = 0  # output tokens that the hold certainly covers


class LiveCalls:
    """Registry of calls in flight. `now_s`: monotonic time of the last sweep."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}
        self._streams: dict[str, LiveStream] = {}
        self.now_s = int(time.monotonic())

    @property
    def calls(self) -> int:
        """Return the number of calls in flight, including streams."""
        return len(self._calls)

    @property
    def streams(self) -> int:
        return len(self._streams)

    def enter(self, call: Call) -> None:
        self._calls[call.id] = call

    def stream(self, call: Call, pump: StreamPump, downstream: Downstream) -> None:
        """Register a call as a stream, which gets heartbeats, a commit and marks from now on."""
        self._streams[call.id] = LiveStream(call, pump, downstream, self.now_s)

    def leave(self, call: Call) -> None:
        """Remove a call that is over. Idempotent."""
        self._calls.pop(call.id, None)
        self._streams.pop(call.id, None)

    def plain_calls(self) -> list[Call]:
        return [call for call in self._calls.values() if not call.requested.stream]

    def open_streams(self) -> list[LiveStream]:
        return list(self._streams.values())

    def attempts_health(self) -> Iterator[AttemptHealth]:
        attempts = (call.attempt for call in self._calls.values())
        return (
            attempt.health
            for attempt in attempts
            if attempt is not None and attempt.health is not None
        )

    def running_at(self, channels: Mapping[str, str]) -> dict[str, int]:
        """Return the number of calls in flight by name of the channel, for these channels (id ->
        name), without zeros."""
        counts: dict[str, int] = {}
        for call in self._calls.values():
            attempt = call.begun_attempt
            name = channels.get(attempt.candidate.channel.id) if attempt is not None else None
            if name is not None:
                counts[name] = counts.get(name, 0) + 1
        return counts

    def force_end(self) -> None:
        """Interrupt every call in flight, since the drain's time is up."""
        for call in list(self._calls.values()):
            call.running.interrupt(DrainForced())

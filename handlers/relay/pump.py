"""The pump of a streamed answer: from the upstream to the client, event by event.

One pump serves a streaming call through all its attempts. No part of an answer is sent to the
client before it is accepted. After that, every complete event is sent in the loop turn that
completed it. An upstream's fault ends the pump, never the client's stream: the pipeline writes the
ending.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from adapters.bridge import Bridge
from adapters.family import ClientSide
from adapters.faults import Condition, Fault
from handlers.relay.call import Delivery, Ending
from handlers.relay.downstream import Downstream, Header
from handlers.relay.upstream.client import Exchange, UpstreamError
from handlers.relay.upstream.errors import fault_of

# Content types of streamed answers, by framing.
CONTENT_TYPES = {"sse": "text/event-stream", "json_array": "application/json", "bytes": ""}
STREAM_HEADERS: tuple[Header, ...] = (
    ("Cache-Control", "no-cache, no-transform"),
    # Without this, nginx with its default settings would hold back the whole answer.
    ("X-Accel-Buffering", "no"),
)

BEATS_TO_EVENT = 4  # every 4th heartbeat is an event, in families that have one for it

NOTHING_DELIVERED = Delivery()
_STOPPED = "The upstream channel stopped answering."


@dataclass(slots=True, eq=False)
class StreamPump:
    """The streamed answer of one call in a family. `on_accepted` is called once. `on_identified` is
    called before the client can read the id of an answer that the vendor stores."""

    _client: ClientSide
    _downstream: Downstream
    _on_accepted: Callable[[], None]
    _on_identified: Callable[[], None]
    _awaits_id: bool = False
    _bridge: Bridge | None = None
    _exchange: Exchange | None = None
    _headers: tuple[Header, ...] = STREAM_HEADERS
    accepted: bool = False
    _begun: bool = False  # accepted, and the id is known if the vendor stores the answer
    _flowing: bool = False  # the head is sent, the answer accepted, the client not paused
    ended: asyncio.Future[Ending] | None = None
    last_sent_s: int = 0
    _beats: int = 0  # heartbeats so far

    def attach(
        self, exchange: Exchange, bridge: Bridge, headers: tuple[Header, ...], *, awaits_id: bool
    ) -> "asyncio.Future[Ending]":
        """Start to relay the answer of `exchange`. Return a future that resolves when the answer
        ends. `awaits_id`: the vendor stores the answer."""
        self._exchange, self._bridge, self._awaits_id = exchange, bridge, awaits_id
        self._headers = headers + STREAM_HEADERS
        self.ended = asyncio.get_running_loop().create_future()
        self._downstream.connection.on_drained = exchange.resume
        exchange.pipe(self._data, self._end, self._pass_on)
        return self.ended

    def begin(self) -> None:
        """Send the head of an accepted answer that ended before its head was sent."""
        if self.accepted and not self._downstream.connection.head_sent:
            self._downstream.start(200, self._headers, b"")

    def commit(self, headers: tuple[Header, ...]) -> None:
        """Send the head and a heartbeat although no answer is accepted yet."""
        self._downstream.start(200, headers + STREAM_HEADERS, self._client.keep_alive(False, None))

    def heartbeat(self, now_s: int, silent_s: int) -> None:
        """Write the family's keep-alive if nothing was sent for `silent_s` seconds."""
        connection, bridge = self._downstream.connection, self._bridge
        if not connection.head_sent or now_s - self.last_sent_s < silent_s or connection.full:
            return
        if bridge is not None and not bridge.at_boundary:
            return
        self._beats += 1
        started, number = False, None
        if self.accepted and bridge is not None and bridge.started:
            started = True
            if not self._beats % BEATS_TO_EVENT:
                number = bridge.last_number
        connection.send(self._client.keep_alive(started, number))
        self.last_sent_s = now_s

    @property
    def output_units(self) -> int:
        """Return the estimated output tokens of the accepted answer so far."""
        return self._bridge.output_units if self.accepted and self._bridge else 0

    @property
    def lacks_usage(self) -> bool:
        """Return whether the answer lacks only its usage report."""
        bridge = self._bridge
        if bridge is None or not self.accepted:
            return False
        return bridge.finished and not bridge.ended and bridge.usage is None

    @property
    def at_boundary(self) -> bool:
        """Return whether an event of the gateway's own may be inserted here, between events."""
        return self._bridge is None or self._bridge.at_boundary

    def delivery(self) -> Delivery:
        """Return the part that was delivered so far, for the bill."""
        bridge = self._bridge
        if bridge is None or not self.accepted or bridge.empty:
            return NOTHING_DELIVERED
        units, upstream_id = bridge.output_units, bridge.upstream_id
        return Delivery(
            *(True, bridge.whole, bridge.usage, bridge.reported, units, upstream_id, bridge.served)
        )

    def _pass_on(self, chunk: bytes) -> bool:
        """Send an event like the last one at once. Nearly all events are. Return False if the chunk
        was not taken."""
        if not self._flowing:
            return False
        assert self._bridge is not None
        out = self._bridge.feed_repeat(chunk)
        if out is None:
            return False
        self.last_sent_s = -1  # the sweep sets the time, so that no event reads the clock
        self._flowing = self._downstream.write(out)
        return True

    def _data(self, chunk: bytes) -> bool:
        """Take a chunk of the upstream's body. Return False if the client's buffer is full."""
        bridge, exchange = self._bridge, self._exchange
        assert bridge is not None and exchange is not None
        has_room = self._pass(bridge, bridge.feed(chunk))
        exchange.unread = bridge.busy
        self._flowing = has_room and bridge.aligned and self._downstream.connection.head_sent
        return has_room

    def _pass(self, bridge: Bridge, out: bytes) -> bool:
        """Start, continue or end the answer with the output for one chunk."""
        ended = self.ended
        assert ended is not None
        if ended.done():
            return True
        if not self._begun:
            if not self.accepted:
                if not bridge.accepted:
                    if bridge.fault is not None:
                        ended.set_result(Ending("upstream_error", bridge.fault))
                    return True
                self._accept()
            self._begun = self._identify(bridge)
        if bridge.ended:
            outcome = "ok" if bridge.fault is None else "upstream_error"
            ended.set_result(Ending(outcome, bridge.fault, tail=out))
            return True
        if not out:
            return True
        self.last_sent_s = -1
        if self._downstream.connection.head_sent:
            return self._downstream.write(out)
        return self._downstream.start(200, self._headers, out)

    def _accept(self) -> None:
        self.accepted = True
        assert self._exchange is not None
        self._exchange.accept()
        self._on_accepted()

    def _identify(self, bridge: Bridge) -> bool:
        """Call `on_identified` once the awaited id is known. Return False until then."""
        if self._awaits_id:
            if bridge.upstream_id is None:
                return False
            self._on_identified()
        return True

    def _end(self, error: UpstreamError | None) -> None:
        bridge, ended = self._bridge, self.ended
        assert bridge is not None and ended is not None
        if ended.done():
            return
        tail = bridge.close() if error is None else b""
        if not self.accepted and bridge.accepted:
            self._accept()
        fault, outcome = bridge.fault, _outcome_of(error)
        if fault is None and bridge.whole and (error is None or bridge.end_seen):
            outcome = "ok"
        elif fault is None and error is not None:
            fault = fault_of(error)
        elif fault is None:
            unfinished = Condition.UPSTREAM_FAILED if self.accepted else Condition.UPSTREAM_INVALID
            fault = Fault(unfinished, _STOPPED if self.accepted else None)
            outcome = "upstream_truncated"
        ended.set_result(Ending(outcome, fault, tail=tail))


def _outcome_of(error: UpstreamError | None) -> str:
    """Return the usage record's outcome for a stream that broke off."""
    if error is None:
        return "upstream_error"
    return "timeout" if error.kind.startswith("timeout") else "upstream_truncated"

"""Carries a streamed answer from the upstream to the client, event by event.

One pump serves a streaming call through all its attempts: nothing of an answer goes down before it
is accepted; after that every complete event goes down in the loop turn that completed it. An
upstream's fault ends the pump, never the client's stream: the pipeline writes the ending.
"""

import asyncio
from collections.abc import Callable

from adapters.bridge import Bridge
from adapters.faults import Condition, Fault
from handlers.relay.call import Call, Ending
from handlers.relay.downstream import Downstream, Header
from handlers.relay.upstream.client import Exchange, UpstreamError
from handlers.relay.upstream.errors import fault_of

# of a streamed answer, by its framing
CONTENT_TYPES = {"sse": "text/event-stream", "json_array": "application/json"}
STREAM_HEADERS: tuple[Header, ...] = (
    ("Cache-Control", "no-cache, no-transform"),
    # nginx with its default settings would hold the whole answer back without this
    ("X-Accel-Buffering", "no"),
)


_STOPPED = "The upstream channel stopped answering."


class StreamPump:
    """The streamed answer of one call."""

    __slots__ = ("_begun", "_bridge", "_call", "_downstream", "_exchange", "_flowing", "_headers",
                 "_on_accepted", "_on_identified", "accepted", "ended", "last_sent_s",
                 "marked_units", "started_s")  # fmt: skip

    def __init__(
        self,
        call: Call,
        downstream: Downstream,
        on_accepted: Callable[[Call], None],
        on_identified: Callable[[Call], None] = lambda call: None,
    ) -> None:
        self._call = call
        self._downstream = downstream
        self._on_accepted = on_accepted
        self._on_identified = on_identified
        self._bridge: Bridge | None = None
        self._exchange: Exchange | None = None
        self._headers: tuple[Header, ...] = STREAM_HEADERS
        self.accepted = False
        self._begun = False  # accepted, and its id is known if the vendor keeps the answer
        self._flowing = False  # the head is out, the answer accepted, the client not paused
        self.ended: asyncio.Future[Ending] | None = None
        self.started_s = 0
        self.last_sent_s = 0
        self.marked_units = 0

    def attach(
        self, exchange: Exchange, bridge: Bridge, headers: tuple[Header, ...]
    ) -> "asyncio.Future[Ending]":
        """Begins to carry the answer of `exchange`; the future says when it is over."""
        self._exchange, self._bridge = exchange, bridge
        self._headers = headers + STREAM_HEADERS
        self.ended = asyncio.get_running_loop().create_future()
        self._downstream.when_drained(exchange.resume)
        exchange.pipe(self._data, self._end, self._pass_on)
        return self.ended

    def begin(self) -> None:
        """Sends the head of an accepted answer that is so short that it is over already."""
        if self.accepted and not self._downstream.head_sent:
            self._downstream.start(200, self._headers, b"")

    def commit(self) -> None:
        """Sends the head and a heartbeat although nothing is accepted yet."""
        beat = self._call.family.client.keep_alive(False)
        content_type = CONTENT_TYPES[self._call.operation.framing]
        told = self._call.attempt.told if self._call.attempt is not None else ()
        headers = (("Content-Type", content_type), *told, *STREAM_HEADERS)
        self._downstream.start(200, headers, beat)

    def heartbeat(self, now_s: int, silent_s: int) -> None:
        """Writes the family's keep-alive when nothing went down for `silent_s` seconds."""
        downstream, bridge = self._downstream, self._bridge
        if not downstream.head_sent or now_s - self.last_sent_s < silent_s or downstream.blocked:
            return
        if bridge is not None and not bridge.at_boundary:
            return
        started = self.accepted and bridge is not None and bridge.started
        downstream.write(self._call.family.client.keep_alive(started))
        self.last_sent_s = now_s

    @property
    def output_units(self) -> int:
        """Estimated output tokens of the accepted answer so far."""
        return self._bridge.output_units if self.accepted and self._bridge else 0

    @property
    def lacks_usage(self) -> bool:
        """Whether the answer is finished but for the report of its usage, which comes next."""
        bridge = self._bridge
        if bridge is None or not self.accepted:
            return False
        return bridge.finished and not bridge.ended and bridge.usage is None

    @property
    def at_boundary(self) -> bool:
        """Whether an event of our own would stand between the vendor's events."""
        return self._bridge is None or self._bridge.at_boundary

    def note_delivery(self) -> None:
        """Copies what the bridge has read into the call, for the bill."""
        delivery, bridge = self._call.delivery, self._bridge
        if bridge is None or not self.accepted:
            return
        delivery.relayed = True
        delivery.usage, delivery.reported = bridge.usage, bridge.reported
        delivery.output_units = bridge.output_units
        delivery.upstream_id = bridge.upstream_id
        delivery.whole = bridge.whole

    def _pass_on(self, chunk: bytes) -> bool:
        """The path of nearly all events: one like the last goes down at once. False: it was not
        taken."""
        if not self._flowing:
            return False
        assert self._bridge is not None
        out = self._bridge.feed_repeat(chunk)
        if out is None:
            return False
        self.last_sent_s = -1  # the sweep stamps it: no clock is read for an event
        self._flowing = self._downstream.write(out)
        return True

    def _data(self, chunk: bytes) -> bool:
        """A piece of the upstream's body; False: the client's buffer is full."""
        bridge, exchange = self._bridge, self._exchange
        assert bridge is not None and exchange is not None
        room = self._pass(bridge, bridge.feed(chunk))
        exchange.unread = bridge.busy
        self._flowing = room and bridge.aligned and self._downstream.head_sent
        return room

    def _pass(self, bridge: Bridge, out: bytes) -> bool:
        """Begins, goes on or ends with what a piece has brought."""
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
        if self._downstream.head_sent:
            return self._downstream.write(out)
        return self._downstream.start(200, self._headers, out)

    def _accept(self) -> None:
        self.accepted = True
        assert self._exchange is not None
        self._exchange.accept()
        self._on_accepted(self._call)

    def _identify(self, bridge: Bridge) -> bool:
        """Whether the id of an answer that the vendor keeps is known, if it keeps it; then
        `on_identified` is called before the client can read it."""
        call = self._call
        if call.stored is None and call.kept:
            if bridge.upstream_id is None:
                return False
            self._on_identified(call)
        return True

    def _end(self, error: UpstreamError | None) -> None:
        """The upstream's body is over."""
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
    """The record's word for a stream that broke off."""
    if error is None:
        return "upstream_error"
    return "timeout" if error.kind.startswith("timeout") else "upstream_truncated"

"""A pump between a scripted upstream exchange and a client that may be slow; and a whole relay."""

import json
from random import random

import msgspec

from adapters.bridge import NativeBridge
from adapters.family import Operation
from adapters.registry import FAMILIES
from conf.settings import Settings
from handlers.relay.call import Call
from handlers.relay.downstream import Downstream
from handlers.relay.limits.cells import private_cells
from handlers.relay.limits.limits import Limits
from handlers.relay.live import LiveCalls
from handlers.relay.pipeline import Relay
from handlers.relay.pump import StreamPump
from handlers.relay.routing.health import Health
from handlers.telemetry.calls import Telemetry
from store.catalog.catalog import Group, Model, Snapshot
from tests.handlers.relay.calls import a_call
from tests.handlers.relay.routing.channels import channel
from tests.support.prices import prices_of

CHAT, MESSAGES = "chat_completions", "messages"
PASSED = (("Content-Type", "text/event-stream; charset=utf-8"), ("x-passed", "1"))
MAX_EVENT_BYTES = 4096
SILENT_S = 15
CREATE = Operation("/v1/some/endpoint")
HELLO = (
    b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},'
    b'"finish_reason":null}]}\n\n'
)


class Connection:
    """A client connection that records what is sent; `room` is False if its buffer is full."""

    def __init__(self):
        self.sent = []
        self.room = True
        self.closed = False
        self.head_sent = False
        self.unsent_bytes = 0
        self.on_drained = None

    @property
    def full(self):
        return not self.room

    def answer(self, *answer):
        self.sent.append(("answer", *answer))

    def start(self, *answer):
        self.head_sent = True
        self.sent.append(("start", *answer))
        return self.room

    def send(self, data):
        self.sent.append(("send", data))
        return self.room

    def finish(self, data):
        self.sent.append(("finish", data))

    def drop(self):
        self.sent.append(("drop",))


def text(words):
    content = b'{"content":"%b"}' % words
    return b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":%b}]}\n\n' % content


def channel_at(upstream, name="main", priority=0, **fields):
    """Return a channel of the group of all calls, at a scripted upstream."""
    url = upstream.url.removesuffix("/v1/test")
    fields = {"models": {"m": "up"}, "groups": frozenset({"gold"}), **fields}
    return channel(name, priority, base_url=url, fingerprints=(), **fields)


class Journal:
    """A journal that keeps the record of the last call."""

    def open_call(self, line):
        self.opened = line

    def mark(self, *args, **fields):
        pass

    def close_call(self, record):
        self.record = record

    refused = close_call


class Calling:
    """A relay whose calls cost nothing, with its only group and the names of its models."""

    def __init__(self, client, stored=None, entries=frozenset(FAMILIES), settings=None):
        self.settings = settings or Settings()
        self.journal, self.live = Journal(), LiveCalls()
        self.group = Group("gold", 10**6, None, entries, False)
        self.models = ["m"]
        self.relay = Relay(
            self.settings, keys=None, funds=None, journal=self.journal, client=client,
            live=self.live, health=Health(random, self.live.attempts_health),
            limits=Limits(private_cells()), stored=stored, telemetry=Telemetry(), node="node",
        )  # fmt: skip

    async def call(self, body, channels, **head):
        """Make a call; return what was sent on the client's connection, and the record."""
        prices = ((0, prices_of(0, 0, 0, 0, 0, 0, 0)),)
        models = {name: Model(name, None, None, False, 0, prices) for name in self.models}
        snapshot = Snapshot(1, {"gold": self.group}, models, channels)
        head = msgspec.structs.replace(a_call().head, group=self.group, snapshot=snapshot, **head)
        connection = Connection()
        downstream = Downstream(connection, ())
        await self.relay.run(Call("id", head), json.dumps(body).encode(), downstream)
        return connection.sent, self.journal.record

    def pass_s(self, seconds):
        """Run this many sweeps."""
        for _ in range(seconds):
            self.relay.sweep(self.live.now_s + 1)


class Exchange:
    """An upstream's answer that the test controls."""

    def __init__(self):
        self.resumed = 0
        self.accepted = 0

    def pipe(self, sink, on_end, pass_on):
        self.data, self.end = lambda piece: pass_on(piece) or sink(piece), on_end

    def resume(self):
        self.resumed += 1

    def accept(self):
        self.accepted += 1


class Client:
    """A client: what it has received, in order; `connection` is its end of the answer."""

    def __init__(self):
        self.connection = Connection()
        self.downstream = Downstream(self.connection, ())

    @property
    def heads(self):
        return [sent[1:3] for sent in self.connection.sent if sent[0] == "start"]

    @property
    def pieces(self):
        return [sent[-1] for sent in self.connection.sent]

    @property
    def body(self):
        return b"".join(self.pieces)


class Rig:
    """A pump with its client, its upstream, and what it reported about its call."""

    def __init__(self, family=CHAT, drop_usage=False):
        self.call = a_call(family)
        self.client = Client()
        self.accepted = 0
        self.identified = []  # the ids known at that time
        client = self.call.head.family.client
        self.pump = StreamPump(client, self.client.downstream, self._accept, self._identify)
        self.drop_usage = drop_usage
        self.attach()

    def _accept(self):
        self.accepted += 1

    def _identify(self):
        self.identified.append(self.bridge.upstream_id)

    def attach(self, operation=CREATE, awaits_id=False):
        """Start another attempt."""
        upstream = self.call.head.family.upstream
        tap = upstream.stream_tap("m", "m", self.drop_usage, operation)
        self.exchange, self.bridge = Exchange(), NativeBridge(tap, MAX_EVENT_BYTES)
        self.ended = self.pump.attach(self.exchange, self.bridge, PASSED, awaits_id=awaits_id)

    @property
    def end(self):
        return self.ended.result()


def beat(family, started):
    return FAMILIES[family].client.keep_alive(started, None)

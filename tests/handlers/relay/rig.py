"""A pump between a scripted upstream exchange and a client that may be slow."""

from adapters.bridge import NativeBridge
from adapters.family import Operation
from adapters.registry import FAMILIES
from handlers.relay.downstream import Downstream
from handlers.relay.pump import StreamPump
from tests.handlers.relay.calls import a_call

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
    """Notes what is sent; `room` is what it says of its buffer."""

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


class Exchange:
    """An upstream's answer as the test plays it."""

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
    """What the client has got, in order; `connection` is its end of the answer."""

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
    """A pump with its client, its upstream, and what it told of its call."""

    def __init__(self, family=CHAT, drop_usage=False):
        self.call = a_call(family)
        self.client = Client()
        self.accepted = []
        self.pump = StreamPump(self.call, self.client.downstream, self.accepted.append)
        self.drop_usage = drop_usage
        self.attach()

    def attach(self):
        """Another attempt."""
        tap = self.call.family.upstream.stream_tap("m", "m", self.drop_usage, CREATE)
        self.exchange = Exchange()
        self.ended = self.pump.attach(self.exchange, NativeBridge(tap, MAX_EVENT_BYTES), PASSED)

    @property
    def end(self):
        return self.ended.result()


def beat(family, started):
    return FAMILIES[family].client.keep_alive(started)

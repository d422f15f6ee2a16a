"""Streams and answers of upstreams on their way to a client of the same family, by way of the hub:
what joins two families is tested with this family on both sides."""

from adapters.chat_completions import CODECS
from adapters.family.codec import Target
from adapters.family.opaque import Origin
from adapters.family.traits import Traits
from adapters.json.structure import at_once
from adapters.registry import FAMILIES
from adapters.translate import TranslatedBridge, Translation, Translator
from tests.adapters.chat_completions.calls import CONTEXT, WIRE, decoded
from tests.adapters.streams import fed

FAMILY = FAMILIES["chat_completions"]
GENERATE = FAMILY.client.operations["generate"]
STREAMS = {path.stem: path.read_bytes() for path in sorted(WIRE.glob("*.sse"))}
TRANSLATOR = Translator(FAMILY, CODECS.client, CODECS.upstream)


def begun(context=CONTEXT, **fields) -> Translation:
    """What serves one attempt of a request with these fields."""
    request = decoded(stream=True, **fields)
    target = Target("openai", "up", Traits())
    origin = Origin("chat_completions", "mark", b"secret", "user")
    return at_once(TRANSLATOR.begin(request, target, context, origin, count=False))


def bridged(pieces, translation=None) -> tuple[bytes, TranslatedBridge]:
    """What is sent of a stream in these pieces, and the bridge behind it."""
    serving = translation or begun()
    bridge = serving.open_bridge("public", "up", False, GENERATE, 1 << 20)
    sent = [fed(bridge, piece) for piece in pieces]
    return b"".join([*sent, bridge.close()]), bridge

"""Answers and streams of upstreams on their way to a client of the same family, by way of the hub:
what joins two families is tested with this family on both sides."""

import pathlib

from adapters.family.codec import Target
from adapters.family.opaque import Origin
from adapters.family.traits import Traits
from adapters.registry import FAMILIES
from adapters.responses import CODECS
from adapters.translate import Translator
from tests.adapters.responses.calls import CONTEXT, decoded, result

FAMILY = FAMILIES["responses"]
WIRE = pathlib.Path(__file__).parents[2] / "wire" / "responses"
STREAMS = [path.read_bytes() for path in sorted(WIRE.glob("*.sse"))]
CREATE = FAMILY.client.operations["generate"]
TRANSLATOR = Translator(FAMILY, CODECS.client, CODECS.upstream)
BEGUN = result(
    TRANSLATOR.begin(
        decoded(stream=True),
        Target("openai", "up", Traits()),
        CONTEXT,
        Origin("responses", "mark", b"secret", "user"),
        count=False,
    )
)


def bridged(pieces):
    """What is sent of a stream in these pieces, and the bridge behind it."""
    bridge = BEGUN.open_bridge("public", "up", False, CREATE, 1 << 20)
    sent = [bridge.feed(piece) for piece in pieces]
    return b"".join([*sent, bridge.close()]), bridge

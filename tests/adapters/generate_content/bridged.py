"""Streams and answers of upstreams on their way to a client of the same family, by way of the hub:
what joins two families is tested with this family on both sides."""

import json
from pathlib import Path

from msgspec.structs import replace

from adapters.family.opaque import Origin
from adapters.framing.sse import EventSplitter, event_fields
from adapters.generate_content import CODECS
from adapters.json.structure import at_once
from adapters.registry import FAMILIES
from adapters.translate import Translator
from tests.adapters.generate_content.calls import CONTEXT, FAMILY, decoded, target
from tests.adapters.streams import fed

WIRE = Path(__file__).parents[2] / "wire" / FAMILY
STREAMS = {path.stem: path.read_bytes() for path in sorted(WIRE.glob("*.sse"))}
STREAM = FAMILIES[FAMILY].client.operations["stream"]
ARRAY = FAMILIES[FAMILY].client.operations["stream_array"]
TRANSLATOR = Translator(FAMILIES[FAMILY], CODECS.client, CODECS.upstream)
ORIGIN = Origin(FAMILY, "mark", b"secret", "user")
MAX_EVENT_BYTES = 1 << 20


def begun(framing="sse"):
    """One attempt."""
    context = replace(CONTEXT, framing=framing)
    return at_once(TRANSLATOR.begin(decoded(stream=True), target(), context, ORIGIN, count=False))


def bridged(pieces, framing="sse"):
    """What is sent of a stream in these pieces, and the bridge behind it."""
    operation = STREAM if framing == "sse" else ARRAY
    bridge = begun(framing).open_bridge("public-model", "up", False, operation, MAX_EVENT_BYTES)
    sent = [fed(bridge, piece) for piece in pieces]
    return b"".join([*sent, bridge.close()]), bridge


def chunks_of(stream: bytes) -> list[dict]:
    """The decoded chunks of a stream of events, which has nothing else."""
    splitter = EventSplitter(MAX_EVENT_BYTES)
    events = splitter.feed(stream)
    assert splitter.empty
    assert all(event.startswith(b"data: {") and event.endswith(b"}\r\n\r\n") for event in events)
    return [json.loads(event_fields(event)[1]) for event in events]

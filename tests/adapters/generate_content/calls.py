"""Helpers for tests of this family's codecs."""

import json
from pathlib import Path

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.family.codec import AnswerContext, Target
from adapters.framing.sse import EventSplitter, event_fields
from adapters.ir.request import Request
from adapters.json.jsonio import top_level
from adapters.json.structure import at_once
from adapters.models import traits_of

CODECS = CODECS_BY_FAMILY["generate_content"]

FAMILY = "generate_content"
WIRE = Path(__file__).parents[2] / "wire" / FAMILY
STREAMS = {path.stem: path.read_bytes() for path in sorted(WIRE.glob("*.sse"))}
CONTEXT = AnswerContext("public-model", "CALL1", 1_700_000_000, 11, include_usage=True)
USER = {"role": "user", "parts": [{"text": "Is tea ready?"}]}


def inline(mime: str, data: str = "AAAA", **more) -> dict:
    """Return a part with media."""
    return {"inlineData": {"mimeType": mime, "data": data, **more}}


def called(call_id: str, name: str = "f", **args) -> dict:
    """Return a part with a call."""
    return {"functionCall": {"id": call_id, "name": name, "args": args}}


def decoded(body: dict | None = None, stream: bool = False, **fields) -> Request:
    """Return a client's body, decoded; ``fields`` are added to a single text of the user."""
    whole = body if body is not None else {"contents": [USER], **fields}
    return at_once(CODECS.client.decode_request(top_level(json.dumps(whole).encode()), stream, "m"))


def target(model: str = "gemini-3-flash", **traits) -> Target:
    """Return a model of the vendor, with the traits of its table and these."""
    return Target("gemini", model, traits_of("gemini", FAMILY, model, traits or None))


def encoded(request: Request, model: str = "gemini-3-flash", count: bool = False, **traits):
    """Return what is sent for a request: the body, decoded, and the rest."""
    made = at_once(CODECS.upstream.encode_request(request, target(model, **traits), count))
    return json.loads(made.body), made


def config_of(request: Request, model: str = "gemini-3-flash", **traits) -> dict:
    """Return the generationConfig that is sent for a request."""
    return encoded(request, model, **traits)[0].get("generationConfig", {})


def chunks_of(stream: bytes) -> list[dict]:
    """Return the decoded chunks of a stream of events; check that it contains nothing else."""
    splitter = EventSplitter(1 << 20)
    events = splitter.feed(stream)
    assert splitter.empty
    assert all(event.startswith(b"data: {") and event.endswith(b"}\r\n\r\n") for event in events)
    return [json.loads(event_fields(event)[1]) for event in events]

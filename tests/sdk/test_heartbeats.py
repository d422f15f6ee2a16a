"""The gateway's heartbeats between the events of a stream, as the official SDKs read them."""

import re

import httpx2
import pytest

from adapters.registry import FAMILIES
from tests.sdk.sdks import SDKS
from tests.sdk.world import WIRE

EVENT = re.compile(rb".+?(?:\r\n\r\n|\n\n)", re.DOTALL)
NUMBER = re.compile(rb'"sequence_number":(\d+)')


def with_heartbeats(family: str) -> bytes:
    """Return a stream with both kinds of heartbeats wherever the gateway may write them."""
    keep_alive = FAMILIES[family].client.keep_alive
    body = b""
    for event in EVENT.findall((WIRE / family / "text.sse").read_bytes()):
        number = NUMBER.search(event)
        started = bool(body)  # true after the first event, in each family
        body += keep_alive(started, None) * 2 + event
        if number is not None:
            body += keep_alive(True, int(number[1]))
    return body


@pytest.mark.parametrize("sdk", SDKS, ids=[sdk.family for sdk in SDKS])
def test_heartbeats_mean_nothing_to_the_sdks(sdk):
    body = {"plain": (WIRE / sdk.family / "text.sse").read_bytes()}
    body["beaten"] = with_heartbeats(sdk.family)
    assert len(body["beaten"]) > len(body["plain"])
    texts = {}
    for kind, stream in body.items():
        answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
        transport = httpx2.MockTransport(lambda request, answer=answer: answer)
        with (
            httpx2.Client(transport=transport) as http,
            sdk.connect("http://gateway" + sdk.base, "key", transport, http) as client,
        ):
            events = list(sdk.create(client, "demo-large", "hello", stream=True))
            texts[kind] = sdk.text(events)
            assert sdk.finished(events)
    assert texts["beaten"] == texts["plain"] != ""


def test_the_helper_for_responses_accumulates_over_heartbeats():
    sdk = next(sdk for sdk in SDKS if sdk.family == "responses")
    head = {"content-type": "text/event-stream"}
    answer = httpx2.Response(200, headers=head, content=with_heartbeats("responses"))
    transport = httpx2.MockTransport(lambda request: answer)
    with (
        httpx2.Client(transport=transport) as http,
        sdk.connect("http://gateway/v1", "key", transport, http) as client,
        client.responses.stream(model="demo-large", input="hello") as stream,
    ):
        kinds = [event.type for event in stream]
        whole = stream.get_final_response()
    assert "keepalive" in kinds and kinds[0] == "response.created"
    assert whole.status == "completed" and whole.output_text

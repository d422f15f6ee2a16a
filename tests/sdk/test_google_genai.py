"""The official google-genai SDK, as people use it, against a real gateway before a scripted vendor.

The SDK sends to /v1, its default, and to /v1beta, the default of its older versions.
"""

import base64
import re

import pytest
from google import genai
from google.genai import types
from pydantic import BaseModel

from tests.sdk.world import (
    ALIAS,
    MODELS_OF_ALICE,
    TIMEOUT_S,
    Wire,
    counts_of,
    sample,
)

FAMILY = "generate_content"
PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(600)
PDF = b"%PDF-1.7\n" + bytes(600)
PLACE = {"type": "object", "properties": {"harbour": {"type": "string"}}}


class Kettle(BaseModel):
    name: str
    cups: int


def make_client(world, key="main", version=None, **options):
    http = {"base_url": world.base_url, "timeout": TIMEOUT_S * 1000, **options}
    if version is not None:
        http["api_version"] = version
    return genai.Client(api_key=world.keys.get(key, key), http_options=types.HttpOptions(**http))


@pytest.fixture(scope="module")
def clients(world):
    """By version; all on one wire."""
    wire = Wire()
    made = {
        version: make_client(world, version=version, client_args={"transport": wire})
        for version in (None, "v1beta")
    }
    yield wire, made
    for client in made.values():
        client.close()
    wire.close()


@pytest.fixture
def wire(clients):
    """The answers of the test's own calls."""
    clients[0].answers.clear()
    return clients[0]


@pytest.fixture(params=[None, "v1beta"])
def client(request, clients):
    return clients[1][request.param]


@pytest.fixture
def default(clients):
    """For what does not depend on the version."""
    return clients[1][None]


@pytest.fixture
def word(request):
    """To find the test's own request at the vendor."""
    return "-".join(re.findall(r"[a-z0-9]+", request.node.name))


def call_id(wire):
    return wire.answers[-1][1]["x-request-id"]


def user(*parts):
    parts = [types.Part(text=part) if isinstance(part, str) else part for part in parts]
    return types.Content(role="user", parts=parts)


def text_of(chunks):
    """Of all chunks, thoughts left out."""
    return "".join(part.text or "" for part in parts_of(chunks) if not part.thought)


def parts_of(chunks):
    return [
        part
        for chunk in chunks
        for candidate in chunk.candidates or ()
        for part in candidate.content.parts or ()
    ]


def finish_of(chunks):
    """The finish reasons in order."""
    reasons = (c.finish_reason for chunk in chunks for c in chunk.candidates or ())
    return [reason.value for reason in reasons if reason is not None]


# ---- answers -------------------------------------------------------------------------------------


def test_chat(client):
    """The SDK keeps the talk and sends the whole of it each time."""
    chat = client.chats.create(model="tea")
    first = chat.send_message("first words")
    chunks = list(chat.send_message_stream("second words"))
    assert "first words" in first.text
    assert "second words" in text_of(chunks)
    assert [content.role for content in chat.get_history()][:3] == ["user", "model", "user"]


def test_several_candidates(default, wire, world):
    answer = default.models.generate_content(
        model="tea", contents="hello", config={"candidate_count": 2}
    )
    first, second = (candidate.content.parts[0].text for candidate in answer.candidates)
    assert first == second
    record = world.gateway.record(call_id(wire))
    assert record["output_tokens"] == answer.usage_metadata.candidates_token_count


@pytest.mark.parametrize("kind", ["finish_chunk", "repeated"])
def test_usage_in_other_places(default, wire, world, kind):
    stream = default.models.generate_content_stream(
        model=world.frail(FAMILY), contents=f"hello [[demo usage={kind}]]"
    )
    last = [chunk.usage_metadata for chunk in stream if chunk.usage_metadata][-1]
    record = world.gateway.record(call_id(wire))
    assert counts_of(record) == {
        "input": last.prompt_token_count,
        "output": last.candidates_token_count,
    }
    assert record["usage_source"] == "reported"


SAMPLES = ["text", "max_tokens", "thinking", "tools_parallel", "safety_stop", "blocked_prompt"]


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_pass_unchanged(default, world, name):
    contents = f"[[demo sample={name}]]"
    # the vendor's own name of the model stays when the channel does not rename it
    model = world.frail(FAMILY)
    answer = default.models.generate_content(model=model, contents=contents)
    expected = types.GenerateContentResponse.model_validate(sample(FAMILY, name))
    # what the SDK adds of its own
    ours = {"sdk_http_response", "parsed", "automatic_function_calling_history"}
    assert answer.model_dump(exclude=ours) == expected.model_dump(exclude=ours)
    if name in ("text", "thinking", "tools_parallel"):  # there are streams of these
        chunks = list(default.models.generate_content_stream(model=model, contents=contents))
        assert text_of(chunks) == text_of([expected])
        assert finish_of(chunks) == finish_of([expected])


# ---- tools, images, files, structures, thinking --------------------------------------------------


def test_functions_that_the_sdk_calls(client):
    """Given functions, the SDK makes the round trip by itself."""
    asked = []

    def get_tide(harbour: str) -> str:
        """The tide of a harbour."""
        asked.append(harbour)
        return "high"

    answer = client.models.generate_content(
        model="tea", contents="Tell me get_tide", config={"tools": [get_tide]}
    )
    assert asked == ["demo"]
    assert "the tool results have arrived" in answer.text


@pytest.mark.parametrize(("kind", "data"), [("image/png", PIXEL), ("application/pdf", PDF)])
def test_media(client, world, word, kind, data):
    part = types.Part.from_bytes(data=data, mime_type=kind)
    answer = client.models.generate_content(model="tea", contents=[part, word])
    assert word in answer.text
    assert base64.urlsafe_b64encode(data).decode() in world.asked(word)["body"]


@pytest.mark.parametrize("field", ["response_schema", "response_json_schema"])
@pytest.mark.parametrize("stream", [False, True])
def test_structured_output(client, field, stream):
    schema = Kettle if field == "response_schema" else Kettle.model_json_schema()
    config = {"response_mime_type": "application/json", field: schema}
    asked = {"model": "tea", "contents": "a kettle", "config": config}
    if stream:
        text = text_of(client.models.generate_content_stream(**asked))
    else:
        answer = client.models.generate_content(**asked)
        text = answer.text
        expected = Kettle(name="demo", cups=7)
        assert answer.parsed == (expected if field == "response_schema" else expected.model_dump())
    assert Kettle.model_validate_json(text) == Kettle(name="demo", cups=7)


# ---- counts and lists ----------------------------------------------------------------------------


def test_models_page_by_page(client, wire):
    names = [f"models/{name}" for name in MODELS_OF_ALICE]
    first = client.models.list(config={"page_size": 40})
    assert [model.name for model in first.page] == names[:40]
    assert [model.name for model in first] == names
    assert len(wire.answers) == -(-len(names) // 40)
    assert [model.name for model in client.models.list(config={"page_size": 1000})] == names


# ---- bytes and headers ---------------------------------------------------------------------------


def test_headers_of_the_vendor(default, wire, world):
    headers = {"X-Client-Request-Id": "tea-46", "x-goog-user-project": "somebody's"}
    answer = default.models.generate_content(
        model="tea",
        contents="headers-of-generate",
        config={"http_options": {"headers": headers}},
    )
    _, down = wire.answers[-1]
    assert not [name for name in ("set-cookie", "server-timing") if name in down]
    up = world.asked("headers-of-generate")
    assert up["path"] == f"/v1beta/models/{ALIAS}:generateContent"
    assert up["headers"]["x-goog-api-key"] == "sk-of-the-operator"
    assert [name for name in up["headers"] if name.startswith("x-")] == ["x-goog-api-key"]
    assert up["headers"]["user-agent"] == "sluice"
    record = world.gateway.record(call_id(wire))
    assert record["client_request_id"] == "tea-46"
    assert record["upstream_request_id"] == answer.response_id


# ---- the asynchronous client ---------------------------------------------------------------------


async def test_text_and_lists_of_the_asynchronous_client(world):
    async with make_client(world, version="v1beta").aio as client:
        answer = await client.models.generate_content(model="tea", contents="hello")
        models = [model.name async for model in await client.models.list()]
    assert "You wrote: “hello”" in answer.text
    assert models == [f"models/{name}" for name in MODELS_OF_ALICE]

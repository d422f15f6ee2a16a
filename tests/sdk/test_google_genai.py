"""The official google-genai SDK, as people use it, against a real gateway before a scripted vendor.

The SDK sends to /v1, its default, and to /v1beta, the default of its older versions.
"""

import base64
import re

import pytest
from google import genai
from google.genai import errors, types
from pydantic import BaseModel

from tests.sdk.world import (
    ALIAS,
    MODELS_OF_ALICE,
    SIGNING_MODEL,
    TIMEOUT_S,
    Wire,
    counts_of,
    sample,
)

FAMILY = "generate_content"
PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(600)
PDF = b"%PDF-1.7\n" + bytes(600)
BOTH_TOOLS = "Tell me get_weather and get_tide"
PLACE = {"type": "object", "properties": {"harbour": {"type": "string"}}}
TOOLS = [
    {
        "function_declarations": [
            # One schema in each of the two ways in which the SDK sends one.
            {"name": "get_weather", "description": "The weather.", "parameters": PLACE},
            {"name": "get_tide", "description": "The tide.", "parameters_json_schema": PLACE},
        ]
    }
]
THINKING = {"thinking_config": {"include_thoughts": True, "thinking_budget": 2000}}


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


def test_limits_and_stops(default):
    short = default.models.generate_content(
        model="tea", contents="hello", config={"max_output_tokens": 3}
    )
    assert finish_of([short]) == ["MAX_TOKENS"]
    assert short.usage_metadata.candidates_token_count == 3
    whole = default.models.generate_content(model="tea", contents="hello")
    cut = default.models.generate_content(
        model="tea", contents="hello", config={"stop_sequences": ["gateway"]}
    )
    assert finish_of([cut]) == ["STOP"]
    assert whole.text.startswith(cut.text) and len(cut.text) < len(whole.text)


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


@pytest.mark.parametrize("model", ["tea", SIGNING_MODEL])
@pytest.mark.parametrize("stream", [False, True])
def test_tools_in_parallel(client, model, stream):
    """A model that signs its calls answers 400 when the signature does not come back."""
    asked = {"model": model, "config": {"tools": TOOLS}}
    talk = [user(BOTH_TOOLS)]
    if stream:
        chunks = list(client.models.generate_content_stream(**asked, contents=talk))
    else:
        chunks = [client.models.generate_content(**asked, contents=talk)]
    parts = [part for part in parts_of(chunks) if part.function_call]
    calls = [part.function_call for part in parts]
    assert [call.name for call in calls] == ["get_weather", "get_tide"]
    assert [call.args for call in calls] == [{"harbour": "demo"}] * 2
    assert finish_of(chunks) == ["STOP"]
    assert bool(parts[0].thought_signature) is (model == SIGNING_MODEL)
    results = [
        types.Part(
            function_response=types.FunctionResponse(
                id=call.id, name=call.name, response={"it": "calm"}
            )
        )
        for call in calls
    ]
    talk += [types.Content(role="model", parts=parts), user(*results)]
    done = client.models.generate_content(**asked, contents=talk)
    assert "the tool results have arrived" in done.text


def test_a_signature_that_does_not_come_back(default):
    """That the test above can fail."""
    asked = {"model": SIGNING_MODEL, "config": {"tools": TOOLS}}
    talk = [user(BOTH_TOOLS)]
    first = default.models.generate_content(**asked, contents=talk)
    parts = [part.model_copy(update={"thought_signature": None}) for part in parts_of([first])]
    results = [
        types.Part.from_function_response(name=part.function_call.name, response={"it": "calm"})
        for part in parts
    ]
    talk += [types.Content(role="model", parts=parts), user(*results)]
    with pytest.raises(errors.ClientError) as caught:
        default.models.generate_content(**asked, contents=talk)
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")


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


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_come_back_in_the_next_turn(client, wire, world, stream, word):
    asked = {"model": "tea", "config": THINKING}
    talk = [user("think")]
    if stream:
        chunks = list(client.models.generate_content_stream(**asked, contents=talk))
    else:
        chunks = [client.models.generate_content(**asked, contents=talk)]
    parts = parts_of(chunks)
    assert [part.text for part in parts if part.thought]
    [signed] = [part for part in parts if part.thought_signature]
    usage = chunks[-1].usage_metadata
    record = world.gateway.record(call_id(wire))
    assert record["reasoning_tokens"] == usage.thoughts_token_count > 0
    assert record["output_tokens"] == usage.candidates_token_count
    talk += [types.Content(role="model", parts=parts), user(word)]
    again = client.models.generate_content(**asked, contents=talk)
    assert word in text_of([again])
    sent = base64.urlsafe_b64encode(signed.thought_signature).decode()
    assert sent in world.asked(word)["body"]


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

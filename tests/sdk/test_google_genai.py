"""The official google-genai SDK, in its usual ways, with a real gateway and a scripted vendor.

The SDK sends to /v1, its default, and to /v1beta, the default of its older versions.
"""

import base64

import pytest
from google import genai
from google.genai import types

from tests.sdk.sdks import PDF, PIXEL, Generate, Kettle
from tests.sdk.world import MODELS_OF_ALICE, TIMEOUT_S, Wire


@pytest.fixture(scope="module", params=["v1", "v1beta"])
def connection(request, world):
    wire = Wire()
    options = types.HttpOptions(
        api_version=request.param if request.param != "v1" else None,
        base_url=world.base_url,
        timeout=TIMEOUT_S * 1000,
        client_args={"transport": wire},
    )
    with genai.Client(api_key=world.keys["main"], http_options=options) as made:
        yield made, wire, request.param


@pytest.fixture
def client(connection):
    return connection[0]


text_of = Generate().text


def test_chat(client):
    """The SDK keeps the conversation and sends all of it each time."""
    chat = client.chats.create(model="tea")
    first = chat.send_message("first words")
    chunks = list(chat.send_message_stream("second words"))
    assert "first words" in first.text
    assert "second words" in text_of(chunks)
    assert [content.role for content in chat.get_history()][:3] == ["user", "model", "user"]


def test_functions_that_the_sdk_calls(client):
    """The SDK calls given functions and sends their results by itself."""
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
def test_media(client, connection, world, kind, data):
    word = f"{kind} of {connection[2]}"
    part = types.Part.from_bytes(data=data, mime_type=kind)
    answer = client.models.generate_content(model="tea", contents=[part, word])
    assert word in answer.text
    assert base64.urlsafe_b64encode(data).decode() in world.asked(word)["body"]


@pytest.mark.parametrize("field", ["response_schema", "response_json_schema"])
def test_structured_output(client, field):
    schema = Kettle if field == "response_schema" else Kettle.model_json_schema()
    config = {"response_mime_type": "application/json", field: schema}
    answer = client.models.generate_content(model="tea", contents="a kettle", config=config)
    assert Kettle.model_validate_json(answer.text) == Kettle(name="demo", cups=7)


def test_models_page_by_page(client, connection):
    _, wire, _ = connection
    wire.answers.clear()
    names = [f"models/{name}" for name in MODELS_OF_ALICE]
    first = client.models.list(config={"page_size": 40})
    assert [model.name for model in first.page] == names[:40]
    assert [model.name for model in first] == names
    assert len(wire.answers) == -(-len(names) // 40)
    assert [model.name for model in client.models.list(config={"page_size": 1000})] == names

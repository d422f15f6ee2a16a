"""The official anthropic SDK, in its usual ways, with a real gateway and a scripted vendor."""

import anthropic
import pytest

from tests.sdk.sdks import PDF_BASE64, PIXEL_BASE64
from tests.sdk.world import MODELS_OF_ALICE, TIMEOUT_S

FAMILY = "messages"


def user(text):
    return [{"role": "user", "content": text}]


def make_client(world, **options):
    options = {"api_key": world.keys["main"], "base_url": world.base_url, **options}
    return anthropic.Anthropic(timeout=TIMEOUT_S, **options)


@pytest.fixture(scope="module")
def client(world):
    with make_client(world) as made:
        yield made


# ---- answers -------------------------------------------------------------------------------------


def test_helper_accumulates(client):
    with client.messages.stream(
        model="tea", max_tokens=200, messages=user("hello"), system="Be brief."
    ) as stream:
        text = "".join(stream.text_stream)
        whole = stream.get_final_message()
    assert whole.content[0].text == text
    assert whole.stop_reason == "end_turn"
    assert whole.model == "tea"
    assert whole.usage.output_tokens > 1


# ---- tools, images, structures, thinking ---------------------------------------------------------


def source(kind, data):
    return {"type": "base64", "media_type": kind, "data": data}


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("kettle-photograph", {"type": "image", "source": source("image/png", PIXEL_BASE64)}),
        ("kettle-handbook", {"type": "document", "source": source("application/pdf", PDF_BASE64)}),
    ],
)
def test_media(client, world, word, part):
    content = [part, {"type": "text", "text": word}]
    answer = client.messages.create(
        model="tea", max_tokens=200, messages=[{"role": "user", "content": content}]
    )
    assert word in answer.content[0].text
    assert part["source"]["data"] in world.asked(word)["body"]


# ---- counts and lists ----------------------------------------------------------------------------


def test_models_page_by_page(client):
    first = client.models.list(limit=40)
    assert len(first.data) == 40
    assert first.has_more
    assert [model.id for model in client.models.list(limit=40)] == MODELS_OF_ALICE
    last = client.models.list(limit=5, before_id=MODELS_OF_ALICE[20])
    assert [model.id for model in last.data] == MODELS_OF_ALICE[15:20]


# ---- credentials, versions, headers --------------------------------------------------------------


def test_the_older_way_to_send_the_key(world):
    """Older SDKs and other clients send x-api-key, the older version, and a query string."""
    older = {
        "x-api-key": world.keys["main"],
        "Authorization": anthropic.omit,
        "anthropic-version": "2023-06-01",
    }
    with make_client(world) as client:
        client.messages.create(
            model="tea",
            max_tokens=9,
            messages=user("older-way"),
            extra_headers=older,
            extra_query={"beta": "true"},
            extra_body={"temperature": 1.0},
        )
    up = world.asked("older-way")
    assert up["path"] == "/v1/messages"
    assert up["headers"]["anthropic-version"] == "2023-06-01"
    assert '"temperature":1.0' in up["body"]
    with make_client(world, api_key=None, auth_token=world.keys["main"]) as client:
        assert client.messages.create(model="tea", max_tokens=9, messages=user("hello")).content


def test_betas_travel_with_the_body(client, world):
    answer = client.beta.messages.create(
        model="tea",
        max_tokens=50,
        messages=user("with-betas"),
        betas=["context-management-2025-06-27", "effort-2025-11-24"],
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
    )
    assert answer.content[0].text
    up = world.asked("with-betas")
    assert up["headers"]["anthropic-beta"] == "context-management-2025-06-27,effort-2025-11-24"
    assert "clear_tool_uses_20250919" in up["body"]


# ---- streams that end early ----------------------------------------------------------------------


def test_pings_inside_a_message(client, world):
    with client.messages.with_streaming_response.create(
        model=world.frail(FAMILY), max_tokens=99, messages=user("[[demo stall=3]]"), stream=True
    ) as answer:
        text = answer.text()
    start, ping, error = (text.index(f"event: {w}\n") for w in ("message_start", "ping", "error"))
    assert start < ping < error

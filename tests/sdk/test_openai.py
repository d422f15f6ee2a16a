"""The official openai SDK, in its usual ways, with a real gateway and a scripted vendor."""

import threading

import openai
import pytest

from tests.sdk.sdks import IMAGE_URL, PDF_BASE64, PDF_URL, PIXEL_BASE64, openai_client

FAMILY = "chat_completions"


def user(text):
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def client(world):
    with openai_client(world) as made:
        yield made


# ---- answers -------------------------------------------------------------------------------------


def test_helper_accumulates(client):
    with client.chat.completions.stream(model="tea", messages=user("hello")) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        whole = stream.get_final_completion()
    assert "".join(deltas) == whole.choices[0].message.content
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].finish_reason == "stop"
    assert whole.model == "tea"


@pytest.mark.parametrize(
    ("word", "part", "data"),
    [
        ("kettle-picture", {"type": "image_url", "image_url": {"url": IMAGE_URL}}, PIXEL_BASE64),
        (
            "kettle-manual",
            {"type": "file", "file": {"filename": "t.pdf", "file_data": PDF_URL}},
            PDF_BASE64,
        ),
    ],
)
def test_media(client, world, word, part, data):
    content = [{"type": "text", "text": word}, part]
    answer = client.chat.completions.create(
        model="tea", messages=[{"role": "user", "content": content}]
    )
    assert word in answer.choices[0].message.content
    assert data in world.asked(word)["body"]


# ---- streams that end early ----------------------------------------------------------------------


def test_a_vendor_that_closes_before_its_head_is_asked_twice_at_most(client, world):
    """The second request is on a kept connection, because a stale one looks the same; ten are kept
    here."""
    model = world.frail(FAMILY)
    slow = user("[[demo first_ms=400]]")
    calls = [
        threading.Thread(
            target=client.chat.completions.create, kwargs={"model": model, "messages": slow}
        )
        for _ in range(10)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    with pytest.raises(openai.InternalServerError):
        client.with_options(max_retries=0).chat.completions.create(
            model=model, messages=user("once-or-twice [[demo close_before_head]]")
        )
    seen = [entry for entry in world.upstream.log() if "once-or-twice" in entry["body"]]
    assert 1 <= len(seen) <= 2

"""The official SDKs' calls of the endpoints beside chat, whole and streamed."""

import pytest
from google import genai
from google.genai import types

from tests.sdk.sdks import PIXEL, openai_client
from tests.sdk.world import TIMEOUT_S
from tests.vendor.endpoints import SOUND

MODEL = "tea"


@pytest.fixture(scope="module")
def client(world):
    with openai_client(world) as made:
        yield made


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_embeddings(client, encoding):
    options = {} if encoding is None else {"encoding_format": encoding}
    answer = client.embeddings.create(model=MODEL, input=["a", "b"], dimensions=3, **options)
    assert (answer.model, answer.usage.prompt_tokens) == (MODEL, 8)
    assert len(answer.data) == 2
    if encoding != "base64":
        assert answer.data[1].embedding == [0.125, 0.25, 0.375]


def test_embeddings_of_gemini(world):
    options = types.HttpOptions(base_url=world.base_url, timeout=TIMEOUT_S * 1000)
    with genai.Client(api_key=world.keys["main"], http_options=options) as client:
        config = types.EmbedContentConfig(output_dimensionality=3)
        answer = client.models.embed_content(model=MODEL, contents=["a", "b"], config=config)
    assert [row.values for row in answer.embeddings] == [[0, 0.125, 0.25], [0.125, 0.25, 0.375]]


def test_completions(client):
    answer = client.completions.create(model=MODEL, prompt="once", max_tokens=9)
    assert (answer.choices[0].text, answer.usage.completion_tokens) == ("once upon a time", 4)
    with client.completions.create(model=MODEL, prompt="once", stream=True) as stream:
        chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "once upon a time"
    assert {chunk.model for chunk in chunks} == {MODEL}


def test_moderations(client):
    assert client.moderations.create(model=MODEL, input="a").results[0].flagged is False


def test_images(client):
    answer = client.images.generate(model=MODEL, prompt="a cat", n=2)
    assert len(answer.data) == 2 and answer.usage.output_tokens == 100
    with client.images.generate(
        model=MODEL, prompt="a cat", stream=True, partial_images=1
    ) as stream:
        kinds = [event.type for event in stream]
    assert kinds == ["image_generation.partial_image", "image_generation.completed"]


def test_edits_of_images(client):
    pictures = [("a.png", PIXEL), ("b.png", PIXEL * 4000)]
    answer = client.images.edit(model=MODEL, prompt="a hat", image=pictures)
    assert answer.data[0].b64_json
    with client.images.edit(
        model=MODEL, prompt="a hat", image=("a.png", PIXEL), stream=True
    ) as stream:
        assert [event.type for event in stream][-1] == "image_edit.completed"


def test_speech(client):
    request = {"model": MODEL, "voice": "alloy", "input": "Tea is ready."}
    assert client.audio.speech.create(**request).content == SOUND
    with client.audio.speech.with_streaming_response.create(**request) as answer:
        assert b"".join(answer.iter_bytes(1000)) == SOUND
        assert answer.headers["content-type"] == "audio/mpeg"


def test_texts_of_speech(client):
    file = ("tea.mp3", SOUND)
    heard = f"heard {len(SOUND)} bytes"
    create = client.audio.transcriptions.create
    answer = create(model=MODEL, file=file)
    assert (answer.text, answer.usage.total_tokens) == (heard, 59)
    assert create(model=MODEL, file=file, response_format="srt") == heard + "\n"
    assert create(model=MODEL, file=file, response_format="verbose_json").duration == 2.5
    with create(model=MODEL, file=file, stream=True) as stream:
        events = list(stream)
    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]
    with pytest.warns(DeprecationWarning):
        assert client.audio.translations.create(model=MODEL, file=file).text == heard
    large = ("tea.mp3", SOUND * 900)
    assert create(model=MODEL, file=large).text == f"heard {len(SOUND) * 900} bytes"

"""Images and documents as upstreams of the messages family take them."""

import base64

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.parts import CacheMark, Media
from adapters.messages.encode_turns import encode_media

PNG, JPEG, PDF = "iVBORw0KGgo=", "/9j/4AAQ", "JVBERi0="


def b64(text):
    return base64.b64encode(text.encode()).decode()


def source(media, documents=True):
    return encode_media(media, documents=documents)["source"]


@pytest.mark.parametrize(
    ("mime", "data", "sent"),
    [
        ("image/png", PNG, "image/png"),
        ("image/jpg", JPEG, "image/jpeg"),
        ("", PNG, "image/png"),
        ("image/x-unknown", "R0lGODlh", "image/gif"),
    ],
)
def test_images_by_data(mime, data, sent):
    block = encode_media(Media("image", mime, data=data), documents=True)
    assert block == {
        "type": "image",
        "source": {"type": "base64", "media_type": sent, "data": data},
    }


def test_images_by_url_and_as_files():
    image = Media("image", url="https://example.com/a", cache=CacheMark())
    assert encode_media(image, documents=True) == {
        "type": "image",
        "source": {"type": "url", "url": "https://example.com/a"},
        "cache_control": {"type": "ephemeral"},
    }
    assert encode_media(Media("file", "image/png", data=PNG), documents=True)["type"] == "image"


def test_documents():
    pdf = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    assert encode_media(Media("file", "application/pdf", data=PDF, name="Log"), documents=True) == {
        "type": "document",
        "source": pdf,
        "title": "Log",
    }
    assert source(Media("file", "", data=PDF)) == pdf
    assert source(Media("file", "application/octet-stream", data=PDF)) == pdf
    assert source(Media("file", "application/pdf", url="https://example.com/a")) == {
        "type": "url",
        "url": "https://example.com/a",
    }
    plain = {"type": "text", "media_type": "text/plain", "data": "calm é"}
    assert source(Media("file", "text/plain", data="calm é", plain=True)) == plain
    assert source(Media("file", "text/markdown", data=b64("calm é"))) == plain


def test_text_documents_are_texts_for_models_that_read_none():
    media = Media("file", "text/plain", data="calm", name="Log", plain=True)
    assert encode_media(media, documents=False) == {"type": "text", "text": "Log\n\ncalm"}
    assert encode_media(Media("file", "text/csv", data=b64("a,b")), documents=False) == {
        "type": "text",
        "text": "a,b",
    }


@pytest.mark.parametrize(
    "media",
    [
        Media("audio", "audio/wav", data="AAAA", path="p"),
        Media("image", ref="file_1", path="p"),
        Media("image", "image/tiff", data="AAAA", path="p"),
        Media("file", "application/zip", data="AAAA", path="p"),
        Media("file", "", data="AAAA", path="p"),
    ],
)
def test_what_the_family_has_no_block_for(media):
    with pytest.raises(Fault) as caught:
        encode_media(media, documents=True)
    assert (caught.value.condition, caught.value.param) == (Condition.UNSUPPORTED, "p")


def test_a_text_document_that_is_no_text():
    with pytest.raises(Fault) as caught:
        encode_media(Media("file", "text/plain", data="/////w==", path="p"), documents=True)
    assert (caught.value.condition, caught.value.param) == (Condition.INVALID_FIELD, "p")

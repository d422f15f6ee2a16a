"""Images and documents in requests of messages clients."""

import pytest

from adapters.faults import Condition
from adapters.ir.parts import CacheMark, Media, Text
from tests.adapters.messages.calls import decoded, features, refused

PATH = "messages[0].content[0]"
PNG = "iVBORw0KGgo="


def block(kind, source, **fields):
    return [{"role": "user", "content": [{"type": kind, "source": source, **fields}]}]


def parts(*args, **fields):
    request = decoded(block(*args, **fields))
    return request.turns[0].parts, features(request)


def test_images():
    mark = {"cache_control": {"type": "ephemeral"}}
    data = {"type": "base64", "media_type": "image/PNG", "data": "iVBORw0KGgo"}
    assert parts("image", data, **mark) == (
        (Media("image", "image/png", data=PNG, cache=CacheMark(), path=PATH),),
        {"cache_mark": PATH + ".cache_control", "image_data": PATH},
    )
    assert parts("image", {"type": "url", "url": "https://example.com/a"}) == (
        (Media("image", url="https://example.com/a", path=PATH),),
        {"image_url": PATH},
    )
    assert parts("image", {"type": "file", "file_id": "f"}) == (
        (Media("image", ref="f", path=PATH),),
        {"file_ref": PATH},
    )


def test_documents():
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    named = {"title": "Log", "context": "From the harbour.", "citations": {"enabled": True}}
    assert parts("document", pdf, **named) == (
        (
            Text("From the harbour."),
            Media("file", "application/pdf", data="JVBERi0=", name="Log", path=PATH),
        ),
        {"citations": PATH + ".citations", "document_data": PATH},
    )
    assert parts("document", {"type": "text", "media_type": "text/plain", "data": "calm"}) == (
        (Media("file", "text/plain", data="calm", plain=True, path=PATH),),
        {"text_document": PATH},
    )
    assert parts("document", {"type": "url", "url": "https://example.com/a.pdf"}) == (
        (Media("file", "application/pdf", url="https://example.com/a.pdf", path=PATH),),
        {"document_url": PATH},
    )
    assert parts("document", {"type": "file", "file_id": "f"}) == (
        (Media("file", ref="f", path=PATH),),
        {"file_ref": PATH},
    )


def test_documents_of_blocks_are_their_blocks():
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a"}}
    found, asked = parts(
        "document", {"type": "content", "content": [{"type": "text", "text": "calm"}, image]}
    )
    at = PATH + ".source.content[1]"
    assert found == (Text("calm"), Media("image", url="https://example.com/a", path=at))
    assert asked == {"image_url": at}
    assert parts("document", {"type": "content", "content": "calm"})[0] == (Text("calm"),)


def test_search_results_are_texts_with_their_source():
    content = [{"type": "text", "text": "calm"}]
    found = {"type": "search_result", "title": "Log", "source": "s", "content": content}
    request = decoded([{"role": "user", "content": [found]}])
    assert request.turns[0].parts == (Text("Log\ns\ncalm"),)


@pytest.mark.parametrize(
    ("kind", "source", "path"),
    [
        ("image", None, ".source"),
        ("image", 7, ".source"),
        ("image", {"type": "ftp"}, ".source.type"),
        ("image", {"type": "base64", "media_type": "image/png", "data": "?"}, ".source.data"),
        ("image", {"type": "url", "url": 7}, ".source.url"),
        ("document", {"type": "ftp"}, ".source.type"),
        ("document", {"type": "text", "data": 7}, ".source.data"),
        ("document", {"type": "content", "content": [7]}, ".source.content[0]"),
    ],
)
def test_wrong_sources_are_refused_by_their_path(kind, source, path):
    condition, param = refused(block(kind, source))
    assert param == PATH + path
    missing = source is None
    assert condition is (Condition.FIELD_MISSING if missing else Condition.INVALID_FIELD)

"""Parts of messages: texts, images, documents, recordings."""

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.parts import CacheMark, Citation, Media, Text
from tests.adapters.responses.calls import asked_for, decoded

PATH = "input[0].content[0]"
OFFICE = "application/vnd.openxmlformats-officedocument"


def part_of(part, role="user"):
    request = decoded([{"role": role, "content": [part]}, {"role": "user", "content": "?"}])
    return request.turns[0].parts[0], asked_for(request)


def image(**fields):
    return {"type": "input_image", **fields}


def file(**fields):
    return {"type": "input_file", **fields}


@pytest.mark.parametrize(
    ("part", "kept", "asks"),
    [
        (
            image(image_url="data:image/gif;base64,aGk"),
            Media("image", "image/gif", "aGk=", path=PATH),
            {"image_data": PATH},
        ),
        (
            image(image_url="https://example.org/a.png", detail="low"),
            Media("image", url="https://example.org/a.png", detail="low", path=PATH),
            {"image_url": PATH, "image_detail": f"{PATH}.detail"},
        ),
        (
            image(file_id="file-1", detail="auto"),
            Media("image", ref="file-1", path=PATH),
            {"file_ref": f"{PATH}.file_id"},
        ),
        (
            file(file_data="data:application/pdf;base64,JVBE", filename="a.pdf"),
            Media("file", "application/pdf", "JVBE", name="a.pdf", path=PATH),
            {"document_data": PATH},
        ),
        (
            file(file_data="JVBE"),
            Media("file", "application/pdf", "JVBE", path=PATH),
            {"document_data": PATH},
        ),
        (
            file(file_data="aGk=", filename="a.md"),
            Media("file", "text/plain", "hi", name="a.md", plain=True, path=PATH),
            {"text_document": PATH},
        ),
        (
            file(file_url="https://example.org/a.csv?x=1"),
            Media("file", "text/csv", url="https://example.org/a.csv?x=1", path=PATH),
            {"document_url": PATH},
        ),
        (
            file(file_data="data:application/octet-stream;base64,UEs=", filename="a.docx"),
            Media("file", f"{OFFICE}.wordprocessingml.document", "UEs=", name="a.docx", path=PATH),
            {"document_data": PATH},
        ),
        (
            file(file_data="UEs=", filename="a.zip"),
            Media("file", "application/octet-stream", "UEs=", name="a.zip", path=PATH),
            {"document_data": PATH},
        ),
        (
            file(file_url="https://example.org/get.php?id=1", filename="a.pdf"),
            Media(
                "file",
                "application/pdf",
                url="https://example.org/get.php?id=1",
                name="a.pdf",
                path=PATH,
            ),
            {"document_url": PATH},
        ),
        (file(file_id="f"), Media("file", ref="f", path=PATH), {"file_ref": f"{PATH}.file_id"}),
        (
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
            Media("audio", "audio/mpeg", "aGk=", path=PATH),
            {"audio": PATH},
        ),
        (
            {
                "type": "input_text",
                "text": "x",
                "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"},
            },
            Text("x", CacheMark(43200)),
            {"cache_mark": f"{PATH}.prompt_cache_breakpoint"},
        ),
    ],
)
def test_parts(part, kept, asks):
    assert part_of(part) == (kept, asks)


def test_sources_of_an_answer():
    annotations = [
        {
            "type": "url_citation",
            "url": "https://a",
            "title": "A",
            "start_index": 1,
            "end_index": 2,
        },
        {"type": "url_citation", "url": 1},
        {"type": "file_path", "file_id": "x"},
    ]
    part, _ = part_of({"type": "output_text", "text": "x", "annotations": annotations}, "assistant")
    assert part == Text("x", citations=(Citation("https://a", "A", 1, 2),))


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ({"text": "x"}, ".type"),
        ({"type": "input_video"}, ".type"),
        ({"type": "input_text"}, ".text"),
        (image(), ".image_url"),
        (image(image_url="data:image/png,raw"), ".image_url"),
        (image(image_url="data:image/png;base64,!"), ".image_url"),
        (image(image_url="x", detail=1), ".detail"),
        (file(), ".file_data"),
        (file(file_data="!"), ".file_data"),
        (file(file_data="data:text/plain;base64,/w=="), ".file_data"),
        ({"type": "input_audio"}, ".input_audio"),
        (
            {"type": "input_audio", "input_audio": {"data": "!", "format": "wav"}},
            ".input_audio.data",
        ),
        (
            {"type": "input_text", "text": "", "prompt_cache_breakpoint": 1},
            ".prompt_cache_breakpoint",
        ),
    ],
)
def test_a_wrong_part_is_named(part, path):
    with pytest.raises(Fault) as caught:
        part_of(part)
    assert caught.value.condition in (Condition.INVALID_FIELD, Condition.FIELD_MISSING)
    assert caught.value.param == PATH + path

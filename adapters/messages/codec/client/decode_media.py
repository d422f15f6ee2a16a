"""Images, documents and search results in requests of clients. Imported by ``decode_turns``."""

from typing import Any

from adapters.family.base64_data import standard_base64
from adapters.faults import wrong_value
from adapters.ir.parts import CacheMark, Media, Part, Text
from adapters.ir.request import Ask
from adapters.messages.codec.client import reading
from adapters.messages.codec.client.cache_marks import decode_mark

_PDF = "application/pdf"


def decode_image(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """An image by its data, its URL, or the vendor's id of a file."""
    source, kind, at = _source(block, path)
    mark = decode_mark(block, path, asks)
    if kind == "base64":
        mime = reading.text(source.get("media_type"), f"{at}.media_type").lower()
        asks.append(Ask("image_data", path))
        data = standard_base64(reading.text(source.get("data"), f"{at}.data"), f"{at}.data")
        return (Media("image", mime, data=data, cache=mark, path=path),)
    if kind == "url":
        asks.append(Ask("image_url", path))
        url = reading.text(source.get("url"), f"{at}.url")
        return (Media("image", url=url, cache=mark, path=path),)
    if kind == "file":
        asks.append(Ask("file_ref", path))
        ref = reading.text(source.get("file_id"), f"{at}.file_id")
        return (Media("image", ref=ref, cache=mark, path=path),)
    raise wrong_value(f"{at}.type", "expected base64, url or file")


def decode_document(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """A document, behind what the client says of its context."""
    source, kind, at = _source(block, path)
    mark = decode_mark(block, path, asks)
    citations = reading.optional_entry(block.get("citations"), f"{path}.citations")
    if citations.get("enabled"):
        asks.append(Ask("citations", f"{path}.citations"))
    said = reading.optional_text(block.get("context"), f"{path}.context")
    before: tuple[Part, ...] = (Text(said),) if said else ()
    name = reading.optional_text(block.get("title"), f"{path}.title")
    if kind == "content":
        return before + _content(source.get("content"), f"{at}.content", asks, mark)
    if kind == "base64":
        mime = reading.text(source.get("media_type", _PDF), f"{at}.media_type").lower()
        data = standard_base64(reading.text(source.get("data"), f"{at}.data"), f"{at}.data")
        asks.append(Ask("document_data", path))
        found = Media("file", mime, data=data, name=name, cache=mark, path=path)
    elif kind == "text":
        text = reading.text(source.get("data"), f"{at}.data")
        asks.append(Ask("text_document", path))
        found = Media("file", "text/plain", data=text, name=name, plain=True, cache=mark, path=path)
    elif kind == "url":
        asks.append(Ask("document_url", path))
        url = reading.text(source.get("url"), f"{at}.url")
        found = Media("file", _PDF, url=url, name=name, cache=mark, path=path)
    elif kind == "file":
        asks.append(Ask("file_ref", path))
        ref = reading.text(source.get("file_id"), f"{at}.file_id")
        found = Media("file", ref=ref, name=name, cache=mark, path=path)
    else:
        raise wrong_value(f"{at}.type", "expected base64, text, url, content or file")
    return (*before, found)


def decode_search_result(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """What the client's own search has found: a text with its source."""
    title = reading.optional_text(block.get("title"), f"{path}.title")
    source = reading.optional_text(block.get("source"), f"{path}.source")
    lines = [line for line in (title, source) if line]
    for at, each in enumerate(reading.entries(block.get("content"), f"{path}.content")):
        lines.append(reading.text(each.get("text"), f"{path}.content[{at}].text"))
    return (Text("\n".join(lines), decode_mark(block, path, asks)),)


def _source(block: dict[str, Any], path: str) -> tuple[dict[str, Any], str, str]:
    at = f"{path}.source"
    source = reading.entry(block.get("source"), at)
    return source, reading.text(source.get("type"), f"{at}.type"), at


def _content(value: object, path: str, asks: list[Ask], mark: CacheMark | None) -> tuple[Part, ...]:
    """A document that is given as text or as blocks."""
    if isinstance(value, str):
        return (Text(value, mark),) if value else ()
    parts: list[Part] = []
    for at, block in enumerate(reading.entries(value, path)):
        here = f"{path}[{at}]"
        if block.get("type") == "image":
            parts += decode_image(block, here, asks)
        else:
            parts.append(Text(reading.text(block.get("text"), f"{here}.text")))
    return tuple(parts)

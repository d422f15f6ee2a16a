"""Images and documents for upstreams. Imported by ``encode_turns``.

Facts: the vendor takes four types of images, PDF, and plain text.
"""

from typing import Any

from adapters.family.base64_data import text_of
from adapters.faults import Condition, Fault
from adapters.ir.parts import Media
from adapters.messages.codec.upstream.cache_marks import with_mark

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF = "application/pdf"
# What files are, when nobody says so: how they begin, in base64.
_BEGINNINGS = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("JVBERi0", _PDF),
)
_TEXTS = ("application/json", "application/xml", "application/yaml", "application/x-yaml")
_SAMPLE_CHARS = 64


def encode_media(media: Media, *, documents: bool) -> dict[str, Any]:
    """The block; UNSUPPORTED for what the family has no block for. ``documents``: the model reads
    them; if not, those of plain text become text."""
    if media.ref or media.kind not in ("image", "file"):
        raise _unsupported(media)
    if media.kind == "image" or media.mime.startswith("image/"):
        return with_mark({"type": "image", "source": _image_source(media)}, media.cache)
    block: dict[str, Any] = {"type": "document", "source": _document_source(media)}
    source = block["source"]
    if source["type"] == "text" and not documents:
        heading = f"{media.name}\n\n" if media.name else ""
        return with_mark({"type": "text", "text": heading + source["data"]}, media.cache)
    if media.name:
        block["title"] = media.name
    return with_mark(block, media.cache)


def _image_source(media: Media) -> dict[str, Any]:
    if media.url:
        return {"type": "url", "url": media.url}
    mime = {"image/jpg": "image/jpeg"}.get(media.mime, media.mime)
    if mime not in _IMAGES:
        mime = _guessed(media.data)
    if mime not in _IMAGES:
        raise _unsupported(media)
    return {"type": "base64", "media_type": mime, "data": media.data}


def _document_source(media: Media) -> dict[str, Any]:
    if media.url:
        return {"type": "url", "url": media.url}
    if media.plain:
        return {"type": "text", "media_type": "text/plain", "data": media.data}
    mime = media.mime or _guessed(media.data)
    if mime == _PDF or _guessed(media.data) == _PDF:
        return {"type": "base64", "media_type": _PDF, "data": media.data}
    if mime.startswith("text/") or mime in _TEXTS:
        text = text_of(media.data, media.path)
        return {"type": "text", "media_type": "text/plain", "data": text}
    raise _unsupported(media)


def _guessed(data: str) -> str:
    head = data[:_SAMPLE_CHARS]
    return next((mime for start, mime in _BEGINNINGS if head.startswith(start)), "")


def _unsupported(media: Media) -> Fault:
    return Fault(Condition.UNSUPPORTED, param=media.path or None)

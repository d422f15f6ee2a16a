"""Media of the family: inlineData and fileData. Imported by ``codec``."""

import re
from typing import Any, Literal

from adapters.family.base64_data import base64_of, standard_base64, text_of
from adapters.faults import Condition, Fault, wrong_value
from adapters.generate_content.codec.wire.fields import Fields
from adapters.ir.parts import Media
from adapters.ir.request import Ask, Feature

_MIME_OF = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "webp": "image/webp",
    "gif": "image/gif", "heic": "image/heic", "heif": "image/heif", "pdf": "application/pdf",
    "txt": "text/plain", "md": "text/markdown", "csv": "text/csv", "html": "text/html",
    "json": "application/json", "xml": "text/xml",
}  # fmt: skip
_ENDING = re.compile(r"\.([A-Za-z0-9]{1,5})(?:[?#]|$)")
# Of images; the vendor refuses any other.
_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
_FILMS = re.compile(r"https://(?:www\.|m\.)?(?:youtube\.com|youtu\.be)/")
_UPLOADED = re.compile(r"(?:https://generativelanguage\.googleapis\.com/\w+/)?files/|gs://")
_DETAILS = {"MEDIA_RESOLUTION_LOW": "low", "MEDIA_RESOLUTION_HIGH": "high"}


def decode_inline(blob: Fields, detail: str = "") -> tuple[Media, Ask]:
    """``inlineData``. Raises Fault INVALID_FIELD when it is no base64 or has no type."""
    mime = _plain_mime(blob.text("mimeType"))
    if not mime:
        raise wrong_value(blob.at("mimeType"), "expected the MIME type of the data")
    data = standard_base64(blob.text("data"), blob.at("data"))
    if not data:
        raise wrong_value(blob.at("data"), "the data are empty")
    name = blob.text("displayName")
    kind = _kind(mime)
    if kind == "file" and mime.startswith("text/"):
        text = text_of(data, blob.at("data"))
        media = Media("file", "text/plain", text, name=name, plain=True, path=blob.path)
    else:
        media = Media(kind, mime, data, name=name, detail=detail, path=blob.path)
    return media, Ask(_feature(media), blob.path)


def decode_file(file: Fields, detail: str = "") -> tuple[Media, Ask]:
    """``fileData``: a file of the vendor's store, or an address."""
    uri = file.text("fileUri")
    if not uri:
        raise wrong_value(file.at("fileUri"), "expected the address of a file")
    mime = _plain_mime(file.text("mimeType")) or mime_of(uri)
    name = file.text("displayName")
    if _UPLOADED.match(uri):
        media = Media(_kind(mime), mime, ref=uri, name=name, detail=detail, path=file.path)
    else:
        kind = "video" if _FILMS.match(uri) else _kind(mime)
        media = Media(kind, mime, url=uri, name=name, detail=detail, path=file.path)
    return media, Ask(_feature(media), file.path)


def decode_detail(resolution: object) -> str:
    """How closely an image is looked at, by a MediaResolution; empty when that is the vendor's."""
    return _DETAILS.get(resolution.upper(), "") if isinstance(resolution, str) else ""


def encode_media(media: Media) -> dict[str, Any]:
    """The part of a request. Raises Fault UNSUPPORTED for an address that the vendor cannot read,
    another vendor's files, and images in a format that it does not know."""
    if media.plain:
        data = {"mimeType": media.mime or "text/plain", "data": base64_of(media.data)}
        return {"inlineData": data}
    mime = media.mime or mime_of(media.url) or ("" if media.url else _DEFAULT[media.kind])
    mime = "image/jpeg" if mime == "image/jpg" else mime
    if mime.startswith("image/") and mime not in _IMAGES:
        raise Fault(Condition.UNSUPPORTED, param=media.path or None)
    if media.data:
        return {"inlineData": {"mimeType": mime, "data": media.data}}
    if media.ref or not media.url.startswith(("https://", "gs://")):
        raise Fault(Condition.UNSUPPORTED, param=media.path or None)
    return {"fileData": ({"mimeType": mime} if mime else {}) | {"fileUri": media.url}}


def mime_of(address: str) -> str:
    """The MIME type that the ending of an address stands for; empty when it is not known."""
    found = _ENDING.search(address)
    return _MIME_OF.get(found[1].lower(), "") if found else ""


_DEFAULT = {
    "image": "image/png", "audio": "audio/wav", "file": "application/pdf", "video": "video/mp4",
}  # fmt: skip


def _kind(mime: str) -> Literal["image", "audio", "file", "video"]:
    family = mime.partition("/")[0]
    if family == "image":
        return "image"
    if family == "audio":
        return "audio"
    return "video" if family == "video" else "file"


def _feature(media: Media) -> Feature:
    if media.kind == "audio":
        return "audio"
    if media.kind == "video":
        return "video"
    if media.ref:
        return "file_ref"
    if media.plain:
        return "text_document"
    if media.kind == "image":
        return "image_url" if media.url else "image_data"
    return "document_url" if media.url else "document_data"


def _plain_mime(mime: str) -> str:
    return mime.partition(";")[0].strip().lower()

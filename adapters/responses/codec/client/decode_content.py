"""What clients put into messages and results of tools: texts, images, documents, recordings.

Imported by ``decode_items``.
"""

from typing import Any

from adapters.family.base64_data import split_data_url, standard_base64, text_of
from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.ir.parts import CacheMark, Citation, Media, Refusal, Text
from adapters.ir.request import Ask
from adapters.responses.annotations import read_citation

_TEXT_TYPES = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_TTL_S = {"30m": 1800, "12h": 43200}
_TEXT_MIMES = frozenset({"application/json", "application/xml", "application/x-yaml"})
_PDF = "application/pdf"
_BYTES = "application/octet-stream"  # what some clients say of everything
_OFFICE = "application/vnd.openxmlformats-officedocument"
_MIME_OF_ENDING = {
    "pdf": _PDF,
    "json": "application/json",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
    "docx": f"{_OFFICE}.wordprocessingml.document",
    "xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    "pptx": f"{_OFFICE}.presentationml.presentation",
    **dict.fromkeys(("txt", "log", "py", "js", "ts", "yaml", "yml", "xml"), "text/plain"),
}
_MIME_OF_SOUND = {"wav": "audio/wav", "mp3": "audio/mpeg"}

ContentPart = Text | Refusal | Media


def decode_content(content: object, path: str, asks: list[Ask]) -> tuple[ContentPart, ...]:
    """The parts of a ``content`` or ``output`` field, a string or an array; what they ask for is
    added to ``asks``. Raises Fault INVALID_FIELD, FIELD_MISSING with the part's path."""
    if isinstance(content, str):
        return (Text(content),)
    if content is None:
        return ()
    if not isinstance(content, list):
        raise wrong_type(path, "expected a string or an array")
    return tuple(_part(part, f"{path}[{i}]", asks) for i, part in enumerate(content))


def shown(parts: tuple[ContentPart, ...]) -> tuple[Text | Media, ...]:
    """Parts of a tool's result, which does not refuse: what is written so is text."""
    return tuple(Text(part.text) if isinstance(part, Refusal) else part for part in parts)


def string(holder: dict[str, Any], name: str, path: str) -> str:
    """A string that must be there: FIELD_MISSING, INVALID_FIELD for ``path.name`` when not."""
    value = holder.get(name)
    if value is None:
        raise Fault(Condition.FIELD_MISSING, param=f"{path}.{name}")
    if not isinstance(value, str):
        raise wrong_type(f"{path}.{name}", "expected a string")
    return value


def optional_string(holder: dict[str, Any], name: str, path: str) -> str:
    """A string that may be null or absent (empty)."""
    return "" if holder.get(name) is None else string(holder, name, path)


def _part(part: object, path: str, asks: list[Ask]) -> ContentPart:
    if not isinstance(part, dict):
        raise wrong_type(path, "expected an object")
    kind = string(part, "type", path)
    if kind in _TEXT_TYPES:
        text = string(part, "text", path)
        return Text(text, _cache_mark(part, path, asks), _citations(part.get("annotations")))
    if kind == "refusal":
        return Refusal(string(part, "refusal", path))
    if kind == "input_image":
        return _image(part, path, asks)
    if kind == "input_file":
        return _file(part, path, asks)
    if kind == "input_audio":
        return _audio(part, path, asks)
    raise wrong_value(f"{path}.type", f"'{kind[:40]}' is not known here")


def _image(part: dict[str, Any], path: str, asks: list[Ask]) -> Media:
    detail = optional_string(part, "detail", path)
    if detail == "auto":  # what vendors do without it
        detail = ""
    if detail:
        asks.append(Ask("image_detail", f"{path}.detail"))
    cache = _cache_mark(part, path, asks)
    if ref := optional_string(part, "file_id", path):
        asks.append(Ask("file_ref", f"{path}.file_id"))
        return Media("image", ref=ref, detail=detail, cache=cache, path=path)
    url = string(part, "image_url", path)
    inline = split_data_url(url, f"{path}.image_url")
    asks.append(Ask("image_data" if inline else "image_url", path))
    if inline is None:
        return Media("image", url=url, detail=detail, cache=cache, path=path)
    mime, data = inline
    return Media("image", mime or "image/png", data, detail=detail, cache=cache, path=path)


def _file(part: dict[str, Any], path: str, asks: list[Ask]) -> Media:
    name = optional_string(part, "filename", path)
    cache = _cache_mark(part, path, asks)
    if ref := optional_string(part, "file_id", path):
        asks.append(Ask("file_ref", f"{path}.file_id"))
        return Media("file", ref=ref, name=name, cache=cache, path=path)
    if url := optional_string(part, "file_url", path):
        asks.append(Ask("document_url", path))
        mime = _mime_of(url.partition("?")[0])
        return Media(
            "file",
            _mime_of(name) if mime == _BYTES else mime,
            url=url,
            name=name,
            cache=cache,
            path=path,
        )
    sent = string(part, "file_data", path)
    place = f"{path}.file_data"
    mime, data = split_data_url(sent, place) or ("", standard_base64(sent, place))
    mime = _mime_of(name) if mime in ("", _BYTES) else mime
    if mime.startswith("text/") or mime in _TEXT_MIMES:
        asks.append(Ask("text_document", path))
        text = text_of(data, place)
        return Media("file", "text/plain", text, name=name, plain=True, cache=cache, path=path)
    asks.append(Ask("document_data", path))
    return Media("file", mime, data, name=name, cache=cache, path=path)


def _mime_of(name: str) -> str:
    """The kind of a file by its name; without an ending it is most probably a PDF."""
    _, dot, ending = name.rpartition("/")[2].rpartition(".")
    return _MIME_OF_ENDING.get(ending.lower(), _BYTES) if dot else _PDF


def _audio(part: dict[str, Any], path: str, asks: list[Ask]) -> Media:
    asks.append(Ask("audio", path))
    holder, place = part.get("input_audio"), f"{path}.input_audio"
    if not isinstance(holder, dict):
        raise wrong_type(place, "expected an object")
    data = standard_base64(string(holder, "data", place), f"{place}.data")
    form = string(holder, "format", place)
    return Media("audio", _MIME_OF_SOUND.get(form, f"audio/{form}"), data, path=path)


def _cache_mark(part: dict[str, Any], path: str, asks: list[Ask]) -> CacheMark | None:
    mark = part.get("prompt_cache_breakpoint")
    if mark is None:
        return None
    place = f"{path}.prompt_cache_breakpoint"
    if not isinstance(mark, dict):
        raise wrong_type(place, "expected an object")
    asks.append(Ask("cache_mark", place))
    return CacheMark(_TTL_S.get(optional_string(mark, "ttl", place)))


def _citations(annotations: object) -> tuple[Citation, ...]:
    if not isinstance(annotations, list):
        return ()
    return tuple(one for one in map(read_citation, annotations) if one is not None)

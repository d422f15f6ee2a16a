"""Content of a client's messages: texts, images, recordings, files, refusals.

Data URLs become media with their base64, text files their text. Source: the content types of the
official OpenAI SDKs. Imported by ``decode_turns``.
"""

from typing import Any

from adapters.chat_completions.codec.reading import named, needed, place, string, typed, word
from adapters.family.base64_data import split_data_url, standard_base64, text_of
from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.ir.parts import CacheMark, Media, Part, Refusal, Text
from adapters.ir.request import Ask, Feature

_PART_KINDS = ("text", "refusal", "image_url", "input_audio", "file")
_AUDIO_MIMES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_CACHE_S = {"30m": 1800, "12h": 43200}
_MIME_BY_ENDING = {"pdf": "application/pdf", "txt": "text/plain", "md": "text/markdown"}


def decode_content(content: object, at: str, asks: list[Ask]) -> list[Part]:
    """The parts of a message's content; ``at`` is its path."""
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(content)]
    if not isinstance(content, list):
        raise wrong_type(at, "expected a string or an array of parts")
    return [_part(part, f"{at}[{index}]", asks) for index, part in enumerate(content)]


def _part(part: object, at: str, asks: list[Ask]) -> Part:
    if isinstance(part, str):
        return Text(part)
    if not isinstance(part, dict):
        raise wrong_type(at, "expected an object")
    kind = named(part, "type", at)
    if kind not in _PART_KINDS:
        raise wrong_value(place(at, "type"), "expected one of " + ", ".join(_PART_KINDS))
    cache = _cache(part, at, asks)
    if kind == "text":
        return Text(needed(part, "text", at, str), cache)
    if kind == "refusal":
        return Refusal(needed(part, "refusal", at, str))
    if kind == "image_url":
        return _image(part, at, asks, cache)
    if kind == "input_audio":
        return _audio(part, at, asks, cache)
    return _file(part, at, asks, cache)


def _cache(part: dict[str, Any], at: str, asks: list[Ask]) -> CacheMark | None:
    mark = typed(part, "prompt_cache_breakpoint", at, dict)
    if mark is None:
        return None
    path = place(at, "prompt_cache_breakpoint")
    asks.append(Ask("cache_mark", path))
    return CacheMark(_CACHE_S.get(word(mark, "ttl", path, tuple(_CACHE_S))))


def _image(part: dict[str, Any], at: str, asks: list[Ask], cache: CacheMark | None) -> Media:
    path = place(at, "image_url")
    image = part.get("image_url")
    if isinstance(image, str):  # a shorthand that some clients send
        image = {"url": image}
    if not isinstance(image, dict):
        raise wrong_type(path, "expected an object")
    url = named(image, "url", path)
    detail = string(image, "detail", path)
    if detail and detail != "auto":
        asks.append(Ask("image_detail", place(path, "detail")))
    data = split_data_url(url, place(path, "url"))
    if data is None:
        asks.append(Ask("image_url", path))
        return Media("image", url=url, detail=detail, cache=cache, path=at)
    asks.append(Ask("image_data", path))
    return Media("image", data[0], data[1], detail=detail, cache=cache, path=at)


def _audio(part: dict[str, Any], at: str, asks: list[Ask], cache: CacheMark | None) -> Media:
    path = place(at, "input_audio")
    audio = needed(part, "input_audio", at, dict)
    data = standard_base64(named(audio, "data", path), place(path, "data"))
    mime = _AUDIO_MIMES.get(word(audio, "format", path, tuple(_AUDIO_MIMES)), "audio/wav")
    asks.append(Ask("audio", path))
    return Media("audio", mime, data, cache=cache, path=at)


def _file(part: dict[str, Any], at: str, asks: list[Ask], cache: CacheMark | None) -> Media:
    path = place(at, "file")
    file = needed(part, "file", at, dict)
    name = string(file, "filename", path)
    said = string(file, "file_data", path)
    if not said:
        ref = string(file, "file_id", path)
        if not ref:
            raise Fault(Condition.FIELD_MISSING, param=place(path, "file_data"))
        asks.append(Ask("file_ref", place(path, "file_id")))
        return Media("file", ref=ref, name=name, cache=cache, path=at)
    where = place(path, "file_data")
    mime, data = split_data_url(said, where) or ("", standard_base64(said, where))
    mime = mime or _MIME_BY_ENDING.get(name.rpartition(".")[2].lower(), "application/pdf")
    feature: Feature = "document_data"
    plain = mime.startswith("text/")
    if plain:
        feature, mime, data = "text_document", "text/plain", text_of(data, where)
    asks.append(Ask(feature, path))
    if mime.startswith("image/"):
        return Media("image", mime, data, name=name, cache=cache, path=at)
    return Media("file", mime, data, name=name, plain=plain, cache=cache, path=at)

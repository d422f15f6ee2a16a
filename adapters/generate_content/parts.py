"""Parts of contents that both directions of the codec read or write.

Here: fields in either spelling, calls, signatures, and the removal of what translated answers left
in a client's body. Clients mix both spellings of proto JSON (maxOutputTokens, max_output_tokens)
in one body. ``ApiFields`` does not read names that a client chooses itself (arguments, schemas,
labels). Imported by this folder.
"""

import base64
import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Literal

from adapters.family import reading
from adapters.family.opaque import PREFIX
from adapters.faults import doubled_field, wrong_type, wrong_value
from adapters.ir.parts import ToolCall
from adapters.ir.request import Effort
from adapters.json.jsonio import (
    Raw,
    Span,
    Spans,
    dumps,
    elements,
    inner_level,
    loads,
    loads_loose,
    replace,
)

COUNTED = "generateContentRequest"  # the request wrapped inside a request to count tokens
MAX_NAME_CHARS = 64
LEVELS: tuple[Effort, ...] = ("minimal", "low", "medium", "high", "xhigh")  # of thinking
MAX_SCHEMA_DEPTH = 60
COUNT_KEYWORDS = (  # of schemas
    *("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"),
)

_HUMP = re.compile(r"[A-Z]")
_UNDERSCORE = re.compile(r"_([a-z0-9])")


class ApiFields:
    """An object of the API, by the camelCase names of its fields, with its path.

    Null fields count as absent. Raises Fault INVALID_FIELD with the path for a wrong type, and for
    a field in both spellings.
    """

    __slots__ = ("_values", "path")

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        self._values: dict[str, Any] = {}
        if not isinstance(value, dict):
            raise wrong_type(path, "expected an object")
        for spelling, inner in value.items():
            name = camel(spelling) if "_" in spelling else spelling
            if name in self._values:
                raise doubled_field(self.at(name))
            self._values[name] = inner

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return (name for name, value in self._values.items() if value is not None)

    def among(self, names: frozenset[str]) -> list[str]:
        """Return those of these fields that are present."""
        return [name for name, value in self._values.items() if name in names and value is not None]

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return reading.field_path(self.path, name)

    def value(self, name: str) -> Any:
        """Return the value of a field; None if absent."""
        return self._values.get(name)

    def text(self, name: str) -> str:
        """Return a string; empty if absent."""
        return reading.string(self._values, name, self.path)

    def flag(self, name: str) -> bool | None:
        """Return a bool; None if absent."""
        return reading.optional(self._values, name, self.path, bool)

    def number(self, name: str) -> float | None:
        """Return a number, which may be written as a string; None if absent."""
        value = self._values.get(name)
        if isinstance(value, str):
            value = _number_of(value)
            if value is None:
                raise wrong_type(self.at(name), "expected a number")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise wrong_type(self.at(name), "expected a number")
        if not math.isfinite(value):
            raise wrong_value(self.at(name), "the number is out of range")
        return value

    def integer(self, name: str) -> int | None:
        """Return a whole number, which may be written as a string or as 3.0; None if absent."""
        value = self.number(name)
        if value is None:
            return None
        if value != int(value):
            raise wrong_type(self.at(name), "expected an integer")
        return int(value)

    def object(self, name: str) -> "ApiFields | None":
        """Return an object of the API; None if absent."""
        value = self._values.get(name)
        return None if value is None else ApiFields(value, self.at(name))

    def free_object(self, name: str) -> dict[str, Any] | None:
        """Return an object whose fields the client chooses; None if absent."""
        return reading.optional(self._values, name, self.path, dict)

    def items(self, name: str) -> list[tuple[Any, str]]:
        """Return an array's elements with their paths. A single element counts as a list, as at the
        vendor."""
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            return [(value, self.at(name))]
        return [(inner, f"{self.at(name)}[{index}]") for index, inner in enumerate(value)]

    def objects(self, name: str) -> "list[ApiFields]":
        """Return the objects of an array."""
        return [ApiFields(inner, path) for inner, path in self.items(name)]

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the strings of an array."""
        for inner, path in self.items(name):
            if not isinstance(inner, str):
                raise wrong_type(path, "expected a string")
        return tuple(inner for inner, _ in self.items(name))


def spellings(name: str) -> tuple[str, ...]:
    """Return a field's possible names in proto JSON: maxOutputTokens and max_output_tokens."""
    return tuple(dict.fromkeys((name, snake(name))))


@lru_cache(maxsize=512)
def snake(name: str) -> str:
    """Return the snake_case name of a field of the API."""
    return _HUMP.sub(lambda match: "_" + match[0].lower(), name)


def camel(name: str) -> str:
    """Return the camelCase name of a field, as in answers."""
    # Longer names are not the API's and must not fill the cache.
    return _camel(name) if "_" in name and len(name) <= MAX_NAME_CHARS else name


@lru_cache(maxsize=512)
def _camel(name: str) -> str:
    return long_camel(name)


def long_camel(name: str) -> str:
    """Return the camelCase name of a field of any length, without the cache."""
    return _UNDERSCORE.sub(lambda match: match[1].upper(), name)


def _number_of(text: str) -> float | None:
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return None


def call_part(call: ToolCall, name: str) -> dict[str, Any]:
    """Return the part for a call; free text is put into an object."""
    arguments = {"input": call.arguments} if call.custom else arguments_of(call.arguments)
    named = {"id": call.id} if call.id else {}
    return {"functionCall": {**named, "name": name, "args": arguments}}


def arguments_of(text: str) -> dict[str, Any]:
    """Return arguments as an object. Anything else, or text that is no JSON, is put into one."""
    whole, value = _read_arguments(text)
    if not whole:
        return {"_raw": text}
    return value if isinstance(value, dict) else {"value": value}


def is_whole(text: str) -> bool:
    """Return true if the arguments of a call are complete JSON, or empty."""
    return _read_arguments(text)[0]


def _read_arguments(text: str) -> tuple[bool, Any]:
    if not text.strip():
        return True, {}
    try:
        value = loads_loose(text.encode(errors="replace"))
        dumps(value)  # the lenient reader accepts values such as NaN that cannot be written
    except (ValueError, OverflowError):
        return False, None
    return True, value


def signature(opaque: str) -> str:
    """Return opaque state for the signature field, which is base64 because SDKs decode it."""
    return base64.b64encode(opaque.encode(errors="replace")).decode()


def signed(signature: str) -> bytes:
    """Return the decoded signature, from either alphabet of base64; empty if it is no base64."""
    plain = signature.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        return b""


# The part that carries the signature: the next call, the text before, or the thought itself.
Place = Literal["call", "text", "thought"]

# Documented for calls that another model made: models that sign their calls require a signature.
BYPASS = "skip_thought_signature_validator"


def sealed(place: Place, signature: str) -> str:
    """Return a signature with its place, in the form for ``adapters.ir``."""
    return f"{place}:{signature}"


def unsealed(opaque: str) -> tuple[Place, str] | None:
    """Return the place and the signature; None for state that this family did not make."""
    place, colon, signature = opaque.partition(":")
    if not colon or not signature:
        return None
    if place == "call":
        return "call", signature
    if place == "text":
        return "text", signature
    return ("thought", signature) if place == "thought" else None


# The prefix of state wrapped by ``adapters.family.opaque``, in base64.
MARK = b"Z3cxL"

_SIGNATURE = "thoughtSignature"


def without_foreign(spans: Spans, model: str) -> bytes:
    """Return the body without signatures of other families; contents without any stay unchanged. A
    call that loses its signature gets the documented placeholder if the model requires one."""
    return _without(spans, model, MARK, _is_ours)


def without_reasoning(spans: Spans, model: str) -> bytes:
    """Return the body without any signatures, whatever their origin."""
    return _without(spans, model, b"ignature", _is_signed)


def _without(
    spans: Spans, model: str, mark: bytes, is_removed: Callable[[dict[str, Any]], bool]
) -> bytes:
    """Return the body without the selected signatures, in contents that contain ``mark``."""
    edits: dict[Span, bytes] = {}
    for fields, offset in _requests(spans):
        place = fields.get("contents")
        if place is None:
            continue
        at = place.start
        for element in elements(fields.body[place.start : place.end]) or ():
            text = bytes(element)
            at = fields.body.index(text, at)
            if mark in text:
                span = Span(offset + at, offset + at + len(text))
                edits[span] = _cleaned(element, is_removed, signs=wants_signatures(model))
            at += len(text)
    return replace(spans.body, edits) if edits else spans.body


def _requests(spans: Spans) -> list[tuple[Spans, int]]:
    """Return the request and, if present, the wrapped one to count, each with its text's offset."""
    requests = [(spans, 0)]
    for name in (COUNTED, snake(COUNTED)):
        place, raw = spans.get(name), spans.raw(name)
        if place is not None and raw is not None and raw.startswith(b"{"):
            requests.append((inner_level(raw), place.start))
    return requests


def _cleaned(element: Raw, is_removed: Callable[[dict[str, Any]], bool], *, signs: bool) -> bytes:
    content = loads(bytes(element))
    parts = content.get("parts") if isinstance(content, dict) else None
    cleaned: list[Any] = []
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and is_removed(part):
            part = _without_signature(part, signs=signs)
            if part == {"text": ""} and len(parts or ()) > 1:
                continue
        cleaned.append(part)
    if isinstance(parts, list) and parts:
        content["parts"] = cleaned or [{"text": ""}]
    return dumps(content)


def _is_signed(part: dict[str, Any]) -> bool:
    return _SIGNATURE in part or snake(_SIGNATURE) in part


def _is_ours(part: dict[str, Any]) -> bool:
    value = part.get(_SIGNATURE, part.get(snake(_SIGNATURE)))
    return isinstance(value, str) and signed(value).startswith(PREFIX.encode())


def _without_signature(part: dict[str, Any], *, signs: bool) -> dict[str, Any]:
    left = {
        name: value for name, value in part.items() if name not in (_SIGNATURE, snake(_SIGNATURE))
    }
    if signs and ("functionCall" in left or "function_call" in left):
        left[_SIGNATURE] = BYPASS
    return left


_MIME_OF = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "webp": "image/webp",
    "gif": "image/gif", "heic": "image/heic", "heif": "image/heif", "pdf": "application/pdf",
    "txt": "text/plain", "md": "text/markdown", "csv": "text/csv", "html": "text/html",
    "json": "application/json", "xml": "text/xml",
}  # fmt: skip
_ENDING = re.compile(r"\.([A-Za-z0-9]{1,5})(?:[?#]|$)")


def mime_of(address: str) -> str:
    """Return the MIME type for the ending of an address; empty if unknown."""
    match = _ENDING.search(address)
    return _MIME_OF.get(match[1].lower(), "") if match else ""


_UNSIGNING = re.compile(r"(?:.*/)?gemini-(?:1|2)\b")


def wants_signatures(model: str) -> bool:
    """Return true for models that refuse unsigned calls, as all since the third generation do."""
    return _UNSIGNING.match(model.removeprefix("models/")) is None

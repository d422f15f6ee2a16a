"""Reading and writing JSON: the only home of ujson, and of msgspec's use in the adapters.

There are three kinds of readers. ``top_level`` and ``loads`` are strict, for bodies of clients:
they refuse anything that two parsers could read differently, because the gateway bills by its
reading while the upstream acts on its own. ``loads_loose`` and the decoders of ``decoder`` are
lenient, for answers of upstreams. ``locate`` finds the place of one value, so that it can be
replaced and every other byte kept; ``decode_element`` stops after one value, which only the
standard library's parser can. Facts: ujson accepts NaN, lone surrogates, control characters and
``1.``; msgspec accepts none of these, but keeps the last of duplicate keys; neither notices bad
UTF-8 in parts that it skips.
"""

import json
import re
from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any, NoReturn, TypeVar

import msgspec
import msgspec.structs
import ujson
from msgspec import Raw as Raw
from msgspec import Struct as Struct

from adapters.faults import Condition, Fault, doubled_field
from adapters.json.structure import Steps, end_of_piece, has_more_values

T = TypeVar("T")

replace_fields = msgspec.structs.replace

MAX_TOP_LEVEL_FIELDS = 1000  # two million one-byte fields would cost 400 MB and a second
MAX_NAME_CHARS = 128  # of a field's name in an error message
MAX_VALUE_BYTES = 65536  # of a decoded value; the fields that are read are short
# Limit of values in a body, to bound decoding time. No model accepts half as many tokens.
MAX_VALUES = 1_000_000
BOM = b"\xef\xbb\xbf"

# Exceptions of a decoder made by decoder() for bytes that do not fit its type.
DECODE_ERRORS = (ValueError, RecursionError)

_UTF8_PIECE_BYTES = 65536  # checked in pieces: a str of 32 MiB may take 128
_BYTE_IN_ERROR = re.compile(r"\(byte (\d+)\)")
_KEY = re.compile(rb'[ \t\r\n]*("(?:[^"\\]++|\\.)*+")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_OBJECT = re.compile(rb"[ \t\r\n]*\{")
_BETWEEN = re.compile(rb"[ \t\r\n]*,")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_BLANK = 32
# Fields of larger bodies are counted while they are read, because there may be too many.
_PLAIN_BODY_BYTES = 65536
_BETWEEN_ELEMENTS = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")
_CONTROL_TO_BLANK = bytes(32 if i < 32 else i for i in range(256))


class _Doubled(Exception):
    """A duplicate key in an object; ends its decoding."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Doubled(next(name for name in names if names.count(name) > 1))
    return fields


_decode_unique = json.JSONDecoder(object_pairs_hook=_unique, parse_int=float).decode
_decode_any = msgspec.json.Decoder().decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_elements = msgspec.json.Decoder(list[Raw]).decode
_decode_one = json.JSONDecoder().raw_decode


class Span(Struct, frozen=True, order=True, gc=False):
    """The place of a value: ``body[start:end]`` is its text."""

    start: int
    end: int


class Spans(Struct, frozen=True):
    """The top-level fields of a JSON object, by the place of their undecoded values."""

    body: bytes
    opening: int  # offset after the opening brace
    places: dict[str, Span]

    def get(self, name: str) -> Span | None:
        """Return the span of the value of ``name``; None if the field is absent."""
        return self.places.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def raw(self, name: str) -> bytes | None:
        """Return the undecoded text of the value of ``name``; None if absent."""
        span = self.places.get(name)
        return None if span is None else self.body[span.start : span.end]

    def value(self, name: str) -> Any:
        """Return the decoded value of ``name``; None if absent or null. Raises Fault INVALID_FIELD
        if it is out of range or longer than MAX_VALUE_BYTES."""
        span = self.places.get(name)
        if span is None:
            return None
        if span.end - span.start > MAX_VALUE_BYTES:
            detail = f"it is longer than {MAX_VALUE_BYTES >> 10} KiB"
            message = f"Wrong value for '{name}': {detail}."
            raise Fault(Condition.INVALID_FIELD, message, param=name, detail=detail)
        try:
            return _decode_any(self.body[span.start : span.end])
        except msgspec.ValidationError:
            message = f"Wrong value for '{name}': a number in it is out of range."
            raise Fault(
                Condition.INVALID_FIELD,
                message,
                param=name,
                detail="a number in it is out of range",
            ) from None


class _Key:
    """A key of an object being read. Two keys of the same name are different objects, so the dict
    that msgspec makes keeps both, in order, and a duplicate key is noticed."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class _TooManyFields(Exception):
    """More than MAX_TOP_LEVEL_FIELDS fields in an object; ends the reading."""


def dumps(value: object) -> bytes:
    """Encode as ASCII JSON without blanks. Raises OverflowError for NaN and infinities."""
    text: str = ujson.dumps(value, ensure_ascii=True, escape_forward_slashes=False, allow_nan=False)
    return text.encode("ascii")


def dumps_text(text: str) -> bytes:
    """Encode a string as ``dumps`` does, several times faster."""
    return encode_basestring_ascii(text).encode("ascii")


def compact(value: object) -> str:
    """Encode as JSON text without blanks, for a string inside JSON. Raises OverflowError for NaN,
    infinities and values that are nested too deeply."""
    text: str = ujson.dumps(
        value, ensure_ascii=False, escape_forward_slashes=False, allow_nan=False
    )
    return text


def loads(data: bytes) -> Any:
    """Decode strictly. Raises INVALID_JSON with line and column, INVALID_FIELD for huge numbers."""
    _check_utf8(data)
    try:
        return msgspec.json.decode(data)
    except msgspec.ValidationError:
        message = "A number in the body is out of range."
        raise Fault(Condition.INVALID_FIELD, message) from None
    except DECODE_ERRORS as error:
        _refuse(data, error)


def loads_unique(data: bytes, path: str) -> Any:
    """Decode a value inside a body that ``top_level`` has read, with numbers as floats. Raises
    Fault INVALID_FIELD, with the value's ``path``, if an object in it has a duplicate key: vendors
    differ in which one they use."""
    try:
        return _decode_unique(data.decode())
    except _Doubled as error:
        param = f"{path}.{str(error)[:MAX_NAME_CHARS]}"
        raise doubled_field(param) from None
    except RecursionError:
        raise Fault(Condition.INVALID_JSON, "The body is nested too deeply.") from None


def loads_loose(data: bytes) -> Any:
    """Decode leniently what an upstream sent. Raises ValueError if it is not JSON."""
    return ujson.loads(data)


def loads_or_none(data: bytes) -> Any:
    """Decode as ``loads_loose`` does; return None if it cannot be read."""
    try:
        return loads_loose(data)
    except ValueError:
        return None


def decoder(shape: type[T]) -> Callable[[bytes], T]:
    """Return a fast decoder for one shape, which skips unknown fields. It raises one of
    DECODE_ERRORS if bytes do not fit; ``loads_loose`` may still read them."""
    return msgspec.json.Decoder(shape).decode


def top_level(body: bytes) -> Spans:
    """Find the places of the fields of the JSON object ``body``.

    Raises Fault INVALID_JSON if it is not one JSON object in UTF-8, INVALID_FIELD if a key is
    duplicate (also in another spelling) or there are more than MAX_TOP_LEVEL_FIELDS.
    """
    _check_utf8(body)
    return _plain_spans(body) or _walk(body, _entries(body))


def inner_level(text: bytes) -> Spans:
    """Find the fields of an object inside a text that ``top_level`` has checked."""
    return _plain_spans(text) or _walk(text, _entries(text))


def top_level_steps(body: bytes) -> Steps[Spans]:
    """Find the places of the fields as ``top_level`` does, for large bodies, in steps. Also raises
    Fault INVALID_FIELD for more than MAX_VALUES values."""
    if (yield from has_more_values(body, MAX_VALUES)):
        message = f"The body has more than {MAX_VALUES} JSON values; no model can take so many."
        raise Fault(Condition.INVALID_FIELD, message)
    yield from utf8_steps(body)
    yield True
    entries = _entries(body)
    yield True
    return _walk(body, entries)


def utf8_steps(data: bytes) -> Steps[None]:
    """Check in steps that ``data`` is UTF-8. Raises Fault INVALID_JSON if it is not."""
    if data.isascii():
        return
    _check_beginning(data)
    at = 0
    while at < len(data):
        at = _check_piece(data, at)
        yield False


def elements(text: bytes) -> list[Raw] | None:
    """Return the undecoded elements of a JSON array inside a text that ``top_level`` has checked;
    None if it is no array. ``loads`` decodes an element."""
    try:
        return _decode_elements(text)
    except DECODE_ERRORS:
        return None


def element_spans(spans: Spans, name: str) -> list[Span]:
    """Return the places in the body of the elements of a field that is an array of objects."""
    text, start = spans.raw(name) or b"", spans.places[name].start
    places, at = [], 1
    for element in map(bytes, elements(text) or ()):
        at = text.index(element, at)  # only blanks and a comma are between two elements
        places.append(Span(start + at, start + at + len(element)))
        at += len(element)
    return places


def decode_element(array: str, at: int) -> tuple[Any, int] | None:
    """Return the next element of a valid JSON array and the offset after it; None at the end, or if
    the text breaks off. ``at``: 1, then each returned offset."""
    match = _BETWEEN_ELEMENTS.match(array, at)
    try:
        return _decode_one(array, match.end() if match else at)
    except DECODE_ERRORS:
        return None


def locate(data: bytes, *path: str) -> Span | None:
    """Return the place of the value at ``path`` ("message", "model") in a JSON object of an
    upstream.

    None if a field of the path is absent or a value on the path is no object. Raises Fault
    UPSTREAM_INVALID if the place is ambiguous: no JSON object, or a duplicate key on the path.
    """
    place: Span | None = None
    for name in path:
        text = data if place is None else data[place.start : place.end]
        if not (text.startswith(b"{") or _OBJECT.match(text)):
            return None
        span = spans_of_upstream(text).places.get(name)
        if span is None:
            return None
        if place is not None:  # offsets in the text are relative to the place
            span = Span(place.start + span.start, place.start + span.end)
        place = span
    return place


def replace(data: bytes, edits: dict[Span, bytes]) -> bytes:
    """Return ``data`` with the text of each span replaced; the spans do not overlap."""
    # Avoid a second copy of megabytes.
    text = data if len(data) <= _PLAIN_BODY_BYTES else memoryview(data)
    if len(edits) == 1:  # the usual case: half the work
        ((span, new),) = edits.items()
        return b"".join((text[: span.start], new, text[span.end :]))
    pieces: list[bytes | memoryview] = []
    done = 0
    for span in sorted(edits):
        pieces += (text[done : span.start], edits[span])
        done = span.end
    return b"".join((*pieces, text[done:]))


def spans_of_upstream(text: bytes) -> Spans:
    """Return the fields of an upstream's JSON object, even if only a lenient reader accepts it.
    Raises Fault UPSTREAM_INVALID if it is no object or has a duplicate key."""
    try:
        return _plain_spans(text) or _walk(text, _entries(text))
    except Fault:
        pass
    # msgspec rejects lone surrogates and raw control characters, but clients read them. Replacing
    # them keeps every offset, and only offsets are needed.
    plain = _SURROGATE_ESCAPE.sub(rb"\\u0020", text.translate(_CONTROL_TO_BLANK))
    try:
        return _walk(plain, _entries(plain))
    except Fault:
        raise Fault(Condition.UPSTREAM_INVALID) from None


def _plain_spans(body: bytes) -> Spans | None:
    """Return the fields of an object in the form that nearly all clients write; None for any other.

    The form: at most one blank after a colon or comma, no escapes in names. This is four times
    faster than ``_walk``. It accounts for every byte up to the closing brace: of duplicate keys the
    decoder keeps one, so the rest does not match.
    """
    if len(body) > _PLAIN_BODY_BYTES or not body.startswith(b'{"'):
        return None
    try:
        entries = _decode_fields(body)
    except DECODE_ERRORS:
        return None
    at = 1
    places: dict[str, Span] = {}
    for name, value in entries.items():
        if places:
            at += 2 if body[at + 1] == _BLANK else 1
        key = f'"{name}":'.encode()
        start = at + len(key)
        if body[at:start] != key:  # faster than `startswith`; copies no value
            return None
        if body[start] == _BLANK:
            start += 1
        at = start + len(memoryview(value))
        if not body.startswith(value, start):
            return None
        places[name] = Span(start, at)
    rest = body[at:]
    if len(places) > MAX_TOP_LEVEL_FIELDS or (rest != b"}" and rest.rstrip() != b"}"):
        return None
    return Spans(body, 1, places)


def _entries(body: bytes) -> dict[_Key, Raw]:
    seen = 0

    def key(_kind: type, name: str) -> _Key:
        nonlocal seen
        seen += 1
        if seen > 2 * MAX_TOP_LEVEL_FIELDS:  # msgspec calls the hook twice for each key
            raise _TooManyFields
        return _Key(name)

    try:
        return msgspec.json.Decoder(dict[_Key, Raw], dec_hook=key).decode(body)
    except _TooManyFields:
        message = f"The body has more than {MAX_TOP_LEVEL_FIELDS} fields."
        raise Fault(Condition.INVALID_FIELD, message) from None
    except msgspec.ValidationError:
        message = "The body must be a JSON object."
        raise Fault(Condition.INVALID_JSON, message) from None
    except DECODE_ERRORS as error:
        _refuse(body, error)


def _walk(body: bytes, entries: dict[_Key, Raw]) -> Spans:
    opening = at = body.index(b"{") + 1
    places: dict[str, Span] = {}
    for key, value in entries.items():
        if places:
            at = _matched(_BETWEEN, body, at)
        start = _matched(_KEY, body, at)
        at = start + len(memoryview(value))
        # The walk must agree with the parser byte for byte, or a place would be a guess.
        if Raw(memoryview(body)[start:at]) != value:
            raise Fault(Condition.INVALID_JSON)
        if key.name in places:
            raise doubled_field(key.name[:MAX_NAME_CHARS])
        places[key.name] = Span(start, at)
    return Spans(body, opening, places)


def _matched(pattern: re.Pattern[bytes], body: bytes, at: int) -> int:
    match = pattern.match(body, at)
    if match is None:
        raise Fault(Condition.INVALID_JSON)
    return match.end()


def _check_utf8(data: bytes) -> None:
    if data.isascii():
        return
    _check_beginning(data)
    at = 0
    while at < len(data):
        at = _check_piece(data, at)


def _check_beginning(data: bytes) -> None:
    if data.startswith(BOM):
        message = "The body begins with a byte order mark; send UTF-8 without it."
        raise Fault(Condition.INVALID_JSON, message)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        message = "The body is UTF-16; send UTF-8."
        raise Fault(Condition.INVALID_JSON, message)


def _check_piece(data: bytes, at: int) -> int:
    """Check a piece of ``data`` and return the offset of the next one."""
    end = end_of_piece(data, at + _UTF8_PIECE_BYTES)
    try:
        data[at:end].decode()
    except UnicodeDecodeError as error:
        message = f"The body is not valid UTF-8 (byte {at + error.start + 1})."
        raise Fault(Condition.INVALID_JSON, message) from None
    return end


def _refuse(data: bytes, error: Exception) -> NoReturn:
    """Raise INVALID_JSON for ``data``, with the position where the parser failed."""
    if isinstance(error, RecursionError):
        raise Fault(Condition.INVALID_JSON, "The body is nested too deeply.") from None
    if b"\x00" in data[:4]:
        message = "The body is UTF-16 or UTF-32; send UTF-8."
        raise Fault(Condition.INVALID_JSON, message) from None
    match = _BYTE_IN_ERROR.search(str(error))
    before = data[: int(match[1])] if match else data
    line = before.count(b"\n") + 1
    column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
    message = f"The body is not valid JSON (line {line}, column {column})."
    raise Fault(Condition.INVALID_JSON, message) from None

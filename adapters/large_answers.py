"""Whole answers that are too large to be decoded at once.

The family's reader gets a shortened answer with the same top-level fields and the long fields
emptied. Its results and edits of the other fields hold for the whole answer. Imported by the
pairings.
"""

from collections.abc import Callable

import msgspec.structs

from adapters.family import LongMark, UpstreamAnswer
from adapters.family.estimate import tokens_of_weight, weight_steps
from adapters.faults import Condition, Fault
from adapters.json.jsonio import Span, Spans, replace, spans_of_upstream, utf8_steps
from adapters.json.structure import Steps, TopLevelField, fields_of

LARGE_BYTES = 512 << 10  # size of an answer; smaller ones are decoded whole, within 25 ms
LONG_FIELD_BYTES = 65_536
SHORT_BYTES = 262_144  # of all fields that are not long

MAX_ELEMENTS = 1000  # counted of one long array

_PIECE_BYTES = 131_072  # searched within a few ms
_EMPTY_ARRAY = b"[{}]"
_EMPTY = {ord("["): _EMPTY_ARRAY, ord("{"): b"{}", ord('"'): b'""'}


def read_large(
    body: bytes, read: Callable[[bytes], UpstreamAnswer], marks: tuple[LongMark, ...] = ()
) -> Steps[UpstreamAnswer]:
    """Read the answer as ``read`` reads a short one. ``marks``: elements of long arrays to count.
    Raises Fault as ``read`` does, and UPSTREAM_INVALID if the body is no JSON object in UTF-8.

    Without readable usage, the long fields are weighed raw. That overestimates their texts, and
    the hold bounds it.
    """
    try:
        yield from utf8_steps(body)
    except Fault:
        raise Fault(Condition.UPSTREAM_INVALID) from None
    fields = yield from fields_of(body)
    if not fields:
        raise Fault(Condition.UPSTREAM_INVALID)
    short, long = yield from _shortened(body, fields, marks)
    answer = read(short)
    units = answer.output_units
    if answer.usage is None:
        weight = 0
        for field in long:
            weight += yield from weight_steps(body, field.start, field.end)
        units += tokens_of_weight(weight)
    if answer.body is not short:
        edited = spans_of_upstream(answer.body)
        yield True
        body = replace(body, _edits(body, fields, long, edited))
    return msgspec.structs.replace(answer, body=body, output_units=units)


def _shortened(
    body: bytes, fields: list[TopLevelField], marks: tuple[LongMark, ...]
) -> Steps[tuple[bytes, list[TopLevelField]]]:
    """Return the object with its long fields reduced to the marks, and the long fields."""
    pieces: list[bytes] = []
    long: list[TopLevelField] = []
    left_bytes = SHORT_BYTES
    for field in fields:
        size_bytes = field.end - field.start
        if size_bytes > min(LONG_FIELD_BYTES, left_bytes):
            long.append(field)
            value = _EMPTY.get(body[field.start], b"0")
            if value == _EMPTY_ARRAY:
                elements = yield from _marked(body, field, marks)
                value = b"[%b]" % b",".join(elements) if elements else value
        else:
            left_bytes -= size_bytes
            value = body[field.start : field.end]
        pieces.append(field.name + b":" + value)
    return b"{%b}" % b",".join(pieces), long


def _marked(body: bytes, field: TopLevelField, marks: tuple[LongMark, ...]) -> Steps[list[bytes]]:
    """Return placeholder elements for the marks found in a long array."""
    elements: list[bytes] = []
    for mark in marks:
        at = field.start
        for begin in range(field.start, field.end, _PIECE_BYTES):
            end = min(begin + _PIECE_BYTES + len(mark.start) - 1, field.end)
            while len(elements) < MAX_ELEMENTS and (at := body.find(mark.start, at, end)) >= 0:
                match = mark.pattern.match(body, at, min(at + LONG_FIELD_BYTES, field.end))
                if match is not None:
                    elements.append(mark.element.replace(b"%b", match[1]))
                at += len(mark.start)
            at = begin + _PIECE_BYTES
            yield False
    return elements


def _edits(
    body: bytes, fields: list[TopLevelField], long: list[TopLevelField], edited: Spans
) -> dict[Span, bytes]:
    """Return the reader's edits of the shortened answer at their places in the whole one."""
    changed: dict[Span, bytes] = {}
    for field, place in zip(fields, edited.places.values(), strict=True):
        value = edited.body[place.start : place.end]
        if field not in long and value != body[field.start : field.end]:
            changed[Span(field.start, field.end)] = value
    return changed

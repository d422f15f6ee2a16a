"""Whole answers that are too large to be decoded at once.

The family's reader gets a shortened answer: the same top-level fields, the long ones emptied. What
it reads and edits in the others holds for the whole answer. Imported by the pairings.
"""

from collections.abc import Callable

import msgspec.structs

from adapters.family import UpstreamAnswer
from adapters.family.estimate import tokens_of_weight, weight_steps
from adapters.faults import Condition, Fault
from adapters.json.jsonio import Span, Spans, replace, spans_of_upstream, utf8_steps
from adapters.json.structure import Steps, TopLevelField, fields_of

LARGE_BYTES = 512 << 10  # of an answer; smaller ones are decoded whole, within 25 ms
LONG_FIELD_BYTES = 65_536
SHORT_BYTES = 262_144  # of the fields that are not long

_EMPTY = {ord("["): b"[{}]", ord("{"): b"{}", ord('"'): b'""'}


def read_large(body: bytes, read: Callable[[bytes], UpstreamAnswer]) -> Steps[UpstreamAnswer]:
    """Read the answer as ``read`` reads a short one. Raises Fault as ``read`` does,
    UPSTREAM_INVALID when the body is no JSON object in UTF-8.

    Without a usage that can be read the long fields are weighed as they stand: more than their
    texts weigh, which is bounded by the hold.
    """
    try:
        yield from utf8_steps(body)
    except Fault:
        raise Fault(Condition.UPSTREAM_INVALID) from None
    fields = yield from fields_of(body)
    if not fields:
        raise Fault(Condition.UPSTREAM_INVALID)
    short, long = _shortened(body, fields)
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


def _shortened(body: bytes, fields: list[TopLevelField]) -> tuple[bytes, list[TopLevelField]]:
    """Return the same object with nothing in its long fields, and the long fields."""
    pieces: list[bytes] = []
    long: list[TopLevelField] = []
    left_bytes = SHORT_BYTES
    for field in fields:
        size_bytes = field.end - field.start
        if size_bytes > min(LONG_FIELD_BYTES, left_bytes):
            long.append(field)
            value = _EMPTY.get(body[field.start], b"0")
        else:
            left_bytes -= size_bytes
            value = body[field.start : field.end]
        pieces.append(field.name + b":" + value)
    return b"{%b}" % b",".join(pieces), long


def _edits(
    body: bytes, fields: list[TopLevelField], long: list[TopLevelField], edited: Spans
) -> dict[Span, bytes]:
    """Return the edits of a reader in the shortened answer, at their places in the whole one."""
    changed: dict[Span, bytes] = {}
    for field, place in zip(fields, edited.places.values(), strict=True):
        value = edited.body[place.start : place.end]
        if field not in long and value != body[field.start : field.end]:
            changed[Span(field.start, field.end)] = value
    return changed

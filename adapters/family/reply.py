"""Readers of upstreams' whole answers, as far as the families share them: they decode the few
fields, count and rename; and readers of a vendor's list of models.

A family's ``upstream.py`` says where its fields stand. Imported by the families.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.family import Operation, UpstreamAnswer
from adapters.family.estimate import tokens_of_weight
from adapters.faults import Condition, Fault
from adapters.json.jsonio import (
    DECODE_ERRORS,
    Raw,
    Struct,
    dumps,
    loads_loose,
    locate,
    replace,
)
from adapters.upstream_errors.read import read_embedded_error
from store.values.usage import NOT_REPORTED, Served, Usage, token_count


class Reply(Struct, gc=False):
    """The fields of a whole answer. ``items``: of the output, each a Raw, or decoded when the body
    was odd; ``reported``: the vendor's usage, ``usage`` the counts in it, None without any."""

    id: object
    reported: object | None
    items: list[Any]
    usage: Usage | None
    served: Served = NOT_REPORTED


def embedded_fault(error: object) -> Fault:
    """Return the fault of a decoded body or event that is an error where an answer should be."""
    return read_embedded_error(error).fault


def rename_model(body: bytes, public: str, upstream_model: str) -> bytes:
    """Return the answer with the model's public name in its field ``model``."""
    place = locate(body, "model")
    if place is None or not body.startswith(b'"', place.start):
        return body
    return replace(body, {place: dumps(public)})


@dataclass(frozen=True, slots=True)
class AnswerReader:
    """Reader of the whole answers of one family.

    ``fields`` decodes the few fields of a body; None, or one of DECODE_ERRORS: it is odd. Then
    ``odd_fields`` has them of the loosely decoded body, or raises the Fault that it reports.
    """

    fields: Callable[[bytes], Reply | None]
    odd_fields: Callable[[Any], Reply]
    weight_of_item: Callable[[dict[str, Any]], int]
    rename: Callable[[bytes, str, str], bytes] = rename_model
    counted: str = ""  # the field of a count's answer
    fault_of: Callable[[object], Fault] = embedded_fault

    def read(
        self, body: bytes, public: str, upstream_model: str, operation: Operation
    ) -> UpstreamAnswer:
        """Return an answer with its usage, its id, and the model's public name in place of the
        upstream's; a count as it is, which costs nothing.

        Raise Fault UPSTREAM_INVALID when it is no answer, or the condition of an error.
        """
        if operation.job == "count":
            return self._read_count(body)
        try:
            if not body.isascii():
                body.decode()  # the decoder does not check what it skips
            reply = self.fields(body)
        except DECODE_ERRORS:
            reply = None
        if reply is None:
            reply = self.odd_fields(loads_answer(body))
        units = 0
        if reply.usage is None:
            units = tokens_of_weight(weight_of_items(reply.items, self.weight_of_item))
        if public != upstream_model:
            body = self.rename(body, public, upstream_model)
        named = reply.id if isinstance(reply.id, str) else None
        return UpstreamAnswer(body, reply.usage, reply.reported, named, units, reply.served)

    def _read_count(self, body: bytes) -> UpstreamAnswer:
        answer = loads_answer(body)
        if not isinstance(answer, dict) or token_count(answer.get(self.counted)) is None:
            raise self.fault_of(answer)
        return UpstreamAnswer(body, None, None, None)


def weight_of_items(items: list[Any], weight_of_item: Callable[[dict[str, Any]], int]) -> int:
    """Return the output weight of the items that are objects; a Raw is decoded first."""
    weight = 0
    for item in items:
        try:
            decoded = loads_loose(bytes(item)) if isinstance(item, Raw) else item
        except ValueError:  # nested deeper than the loose reader goes
            continue
        if isinstance(decoded, dict):
            weight += weight_of_item(decoded)
    return weight


def loads_answer(body: bytes) -> Any:
    """Return a decoded body of an upstream; raise Fault UPSTREAM_INVALID when it is no JSON."""
    try:
        return loads_loose(body)
    except ValueError:
        raise Fault(Condition.UPSTREAM_INVALID) from None


def counted_tokens(field: str, body: bytes) -> int:
    """Return the tokens in ``field`` that an upstream has counted."""
    answer = loads_answer(body)
    tokens = token_count(answer.get(field)) if isinstance(answer, dict) else None
    if tokens is None:
        raise Fault(Condition.UPSTREAM_INVALID)
    return tokens


def list_page(body: bytes, field: str) -> list[Mapping[str, Any]]:
    """Return the objects in ``field`` of a page; raise Fault UPSTREAM_INVALID when it is none."""
    answer = loads_answer(body)
    entries = answer.get(field) if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise Fault(Condition.UPSTREAM_INVALID)
    return [entry for entry in entries if isinstance(entry, dict)]


def list_names(entries: Sequence[Mapping[str, Any]], field: str) -> list[str]:
    """Return the names in ``field`` of the entries, each once, in their order."""
    names = (entry.get(field) for entry in entries)
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def read_models(body: bytes) -> list[str]:
    """Return the models' names in a page, as three of the families have it."""
    return list_names(list_page(body, "data"), "id")


def dicts(value: object) -> list[dict[str, Any]]:
    """Return the objects of an array; none of anything else."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def text_field(holder: dict[str, Any], name: str) -> str:
    """Return a string; empty when it is missing or anything else."""
    value = holder.get(name)
    return value if isinstance(value, str) else ""

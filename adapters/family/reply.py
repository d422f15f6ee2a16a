"""Readers of upstreams' whole answers, as far as the families share them, and readers of a vendor's
list of models.

They decode a few fields, count tokens and rename the model. A family's ``upstream.py`` says where
its fields are. Imported by the families.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from adapters.family import Operation, UpstreamAnswer
from adapters.family.empty_answer import NO_USAGE, counts_nothing, empty_answer
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
    """The fields of a whole answer. ``items``: of the output, each a Raw, or decoded if the body
    was odd. ``reported``: the vendor's usage; ``usage``: the counts in it, None if there are none.
    ``plain``: as far as the answer says, it ended with a plain stop. ``lacks_ids``: a call in it
    may have no id."""

    id: object
    reported: object | None
    items: list[Any]
    usage: Usage | None
    served: Served = NOT_REPORTED
    plain: bool = True
    lacks_ids: bool = False


def embedded_fault(error: object) -> Fault:
    """Return the fault of a decoded body or event that is an error in place of an answer."""
    return read_embedded_error(error).fault


def rename_model(body: bytes, public: str, upstream_model: str) -> bytes:
    """Return the answer with the model's public name in its ``model`` field."""
    place = locate(body, "model")
    if place is None or not body.startswith(b'"', place.start):
        return body
    return replace(body, {place: dumps(public)})


@dataclass(frozen=True, slots=True)
class AnswerReader:
    """Reader of the whole answers of one family.

    ``fields`` decodes a few fields of a body. If it returns None or raises one of DECODE_ERRORS,
    the body is odd: ``odd_fields`` then reads the loosely decoded body, or raises the Fault that
    the body reports.
    """

    fields: Callable[[bytes], Reply | None]
    odd_fields: Callable[[Any], Reply]
    weight_of_item: Callable[[dict[str, Any]], int]
    # Return false for an empty item; its own reason to end, if it has one, is then the plain stop.
    has_content: Callable[[dict[str, Any]], bool]
    rename: Callable[[bytes, str, str], bytes] = rename_model
    counted: str = ""  # the field of a count's answer with the number
    fault_of: Callable[[object], Fault] = embedded_fault
    with_ids: Callable[[bytes], bytes] | None = None  # writes the ids that calls lack

    def read(
        self, body: bytes, public: str, upstream_model: str, operation: Operation
    ) -> UpstreamAnswer:
        """Return an answer with its usage, its id, and the model's public name in place of the
        upstream's. A count is returned unchanged and costs nothing.

        Raises Fault UPSTREAM_INVALID if it is no answer or an empty one, or the condition of an
        error in it.
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
        if reply.usage is None or reply.usage == NO_USAGE:
            items = decoded_items(reply.items)
            units = tokens_of_weight(weight_of_items(items, self.weight_of_item))
            silent = not units and reply.plain and operation.job in ("generate", "stream")
            silent = silent and counts_nothing(reply.usage, reply.reported)
            if silent and not any(map(self._is_something, items)):
                raise empty_answer()
            units = units if reply.usage is None else 0
        if public != upstream_model:
            body = self.rename(body, public, upstream_model)
        if reply.lacks_ids and self.with_ids is not None:
            body = self.with_ids(body)
        named = reply.id if isinstance(reply.id, str) else None
        return UpstreamAnswer(body, reply.usage, reply.reported, named, units, reply.served)

    def _is_something(self, item: object) -> bool:
        """Return true for an item with content, an unreadable item, or an item that was emptied
        (``large_answers``)."""
        return not isinstance(item, dict) or not item or self.has_content(item)

    def _read_count(self, body: bytes) -> UpstreamAnswer:
        answer = loads_answer(body)
        if not isinstance(answer, dict) or token_count(answer.get(self.counted)) is None:
            raise self.fault_of(answer)
        return UpstreamAnswer(body, None, None, None)


def decoded_items(items: list[Any]) -> list[Any]:
    """Return the items decoded; a Raw nested too deeply for the loose reader stays a Raw."""
    decoded = []
    for item in items:
        if isinstance(item, Raw):
            with suppress(ValueError):
                item = loads_loose(bytes(item))
        decoded.append(item)
    return decoded


def weight_of_items(items: list[Any], weight_of_item: Callable[[dict[str, Any]], int]) -> int:
    """Return the output weight of the items that are objects."""
    return sum(weight_of_item(item) for item in items if isinstance(item, dict))


def loads_answer(body: bytes) -> Any:
    """Return a decoded upstream body. Raises Fault UPSTREAM_INVALID if it is no JSON."""
    try:
        return loads_loose(body)
    except ValueError:
        raise Fault(Condition.UPSTREAM_INVALID) from None


def counted_tokens(field: str, body: bytes) -> int:
    """Return the token count in ``field``. Raises Fault UPSTREAM_INVALID if there is none."""
    answer = loads_answer(body)
    tokens = token_count(answer.get(field)) if isinstance(answer, dict) else None
    if tokens is None:
        raise Fault(Condition.UPSTREAM_INVALID)
    return tokens


def list_page(body: bytes, field: str) -> list[Mapping[str, Any]]:
    """Return the objects in a page's ``field``. Raises Fault UPSTREAM_INVALID if it is no page."""
    answer = loads_answer(body)
    entries = answer.get(field) if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise Fault(Condition.UPSTREAM_INVALID)
    return [entry for entry in entries if isinstance(entry, dict)]


def list_names(entries: Sequence[Mapping[str, Any]], field: str) -> list[str]:
    """Return the distinct names in ``field`` of the entries, in order."""
    names = (entry.get(field) for entry in entries)
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def read_models(body: bytes) -> list[str]:
    """Return the models' names in a page, in the form that three of the families share."""
    return list_names(list_page(body, "data"), "id")


def dicts(value: object) -> list[dict[str, Any]]:
    """Return the objects of an array; empty for anything else."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def text_field(holder: dict[str, Any], name: str) -> str:
    """Return a string; empty if it is missing or no string."""
    value = holder.get(name)
    return value if isinstance(value, str) else ""

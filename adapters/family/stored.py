"""References in requests to objects that upstream accounts store: responses, files, containers.

Many users share a channel's account, so each reference must be checked. Here are a reference
(``StoredRef``) and the search of a request without decoding it (``StoredFields``); each family
names its own fields. Only fields through which a vendor opens an object count, not fields of the
history that repeat an answer. Arguments and schemas of tools are not read. Imported by the families
and the relay.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from adapters.faults import Condition, Fault
from adapters.json.jsonio import Spans, Struct, elements, loads_unique
from adapters.json.structure import Steps

MAX_REFS = 1000  # limit of ids in one request
SEARCHED_BYTES = 1 << 20  # of a large body in one step: a millisecond
MAX_NAME_BYTES = 64  # of a searched field with its quotes, and of an escape in it

Kind = Literal["answer", "either", "given", "thread", "tool"]


class StoredRef(Struct, frozen=True, gc=False):
    """A reference in a request to an object that an upstream account stores: field path and id.

    ``kind``: "answer": made by an answer, usable only by its user; "either": made by an answer or
    outside the gateway; "given": made outside; "thread": no id, asks the upstream to store the
    conversation; "tool": no id, the feature that a tool asks for. ``alone``: if the gateway does
    not know the id, the call may go to the only channel there is. ``details``: of the fault that
    refuses it, for clients that act on them.
    """

    kind: Kind
    param: str
    id: str
    alone: bool = False
    details: Mapping[str, object] | None = None


class StoredRefs:
    """The references of one request, each id once. Methods that read fields raise Fault
    INVALID_FIELD if an object in a field has the same key twice."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._refs: dict[tuple[Kind, str], StoredRef] = {}

    def field(self, name: str) -> Any:
        """Return the decoded value of a top-level field; None if it is absent."""
        text = self._spans.raw(name)
        return None if text is None else loads_unique(text, name)

    def elements(
        self, name: str, marks: "FieldMarks", each: Callable[[Any, str], None]
    ) -> Steps[None]:
        """Call ``each`` with value and path of the array elements that have a mark, in steps."""
        text = self._spans.raw(name)
        if text is None or not text.startswith(b"["):
            return
        listed = elements(text)
        yield False
        for index, element in enumerate(listed or ()):
            inner = bytes(element)
            if marks.stand_in(inner, 0, len(inner)):
                path = f"{name}[{index}]"
                each(loads_unique(inner, path), path)
                yield False

    def add(self, kind: Kind, param: str, value: object, **more: Any) -> None:
        """Add an id, unless it is empty or no string. Raises INVALID_FIELD beyond MAX_REFS."""
        if not isinstance(value, str) or not value:
            return
        self._refs.setdefault((kind, value), StoredRef(kind, param, value, **more))
        if len(self._refs) > MAX_REFS:
            detail = f"the request names more than {MAX_REFS} kept things"
            raise Fault(Condition.INVALID_FIELD, f"{detail}.", param=param, detail=detail)

    def add_at(self, kind: Kind, value: object, path: str, *names: str, **more: Any) -> None:
        """Add the ids at the nested ``names`` of the objects in a value."""
        for place, inner in inner_values(value, path, *names):
            self.add(kind, place, inner, **more)

    def add_all(self, kind: Kind, param: str, values: object) -> None:
        """Add the ids of a list."""
        for index, value in enumerate(values if isinstance(values, list) else ()):
            self.add(kind, f"{param}[{index}]", value)

    def need_thread(self, param: str, details: Mapping[str, object]) -> None:
        """Add that the request asks the upstream to store the conversation."""
        self._refs["thread", ""] = StoredRef("thread", param, "", details=details)

    @property
    def all(self) -> tuple[StoredRef, ...]:
        """The references in order."""
        return tuple(self._refs.values())


class FieldMarks:
    """Field names. Every text with a reference contains at least one of them."""

    def __init__(self, *names: str) -> None:
        inner = "|".join(map(re.escape, names))
        self._plain = re.compile(rf'"(?:{inner})"'.encode())
        # The only other way to write letters is by escapes that start with \\u00.
        self._escaped = re.compile(rf'"(?:(?:{inner})"|[A-Za-z_]*+\\u00)'.encode())

    def stand_in(self, text: bytes, start: int, end: int) -> bool:
        """Return true if text[start:end] has one of the names, or a name with an escape."""
        pattern = self._plain if text.find(b"\\", start, end) < 0 else self._escaped
        return pattern.search(text, start, end) is not None


@dataclass(frozen=True, slots=True)
class StoredFields:
    """Fields through which requests of a family refer to objects that accounts store.

    ``fields``: top-level fields that may hold a reference whenever they are present. ``marks``: for
    other top-level fields, names of which one is in every field with a reference. ``read`` adds a
    request's references, in steps. It raises INVALID_FIELD for wrong types and duplicate keys.
    """

    fields: frozenset[str]
    marks: tuple[tuple[str, FieldMarks], ...]
    read: Callable[[StoredRefs], Steps[None]]

    def may_name(self, spans: Spans) -> bool:
        """Return true if a request may have references, without decoding it."""
        places = spans.places
        if not self.fields.isdisjoint(places):
            return True
        for name, marks in self.marks:
            place = places.get(name)
            if place is not None and marks.stand_in(spans.body, place.start, place.end):
                return True
        return False

    def may_name_steps(self, spans: Spans) -> Steps[bool]:
        """Return the same as ``may_name`` for a large request, in steps."""
        if not self.fields.isdisjoint(spans.places):
            return True
        for name, marks in self.marks:
            if (place := spans.places.get(name)) is None:
                continue
            for at in range(place.start, place.end, SEARCHED_BYTES):
                end = min(at + SEARCHED_BYTES + MAX_NAME_BYTES, place.end)
                if marks.stand_in(spans.body, at, end):
                    return True
                yield False
        return False

    def refs(self, spans: Spans) -> Steps[tuple[StoredRef, ...]]:
        """Return the references of a request that may have some, in steps."""
        refs = StoredRefs(spans)
        yield from self.read(refs)
        return refs.all


def _nothing(refs: StoredRefs) -> Steps[None]:
    yield from ()


NO_STORED_FIELDS = StoredFields(frozenset(), (), _nothing)
"""For a family whose requests have no references."""


def objects(value: object, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a list with their paths, or a single object."""
    if isinstance(value, dict):
        yield path, value
    for index, element in enumerate(value if isinstance(value, list) else ()):
        if isinstance(element, dict):
            yield f"{path}[{index}]", element


def inner_values(
    value: object,
    path: str,
    *names: str,
    spellings: Callable[[str], tuple[str, ...]] = lambda name: (name,),
) -> Iterator[tuple[str, Any]]:
    """Yield the values at the nested ``names`` with their paths."""
    if not names:
        yield path, value
        return
    for place, holder in objects(value, path):
        for name in spellings(names[0]):
            if name in holder:
                inner = f"{place}.{name}"
                yield from inner_values(holder[name], inner, *names[1:], spellings=spellings)

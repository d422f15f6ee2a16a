"""References of requests to what upstream accounts store: responses, files, containers.

A channel's account is shared by many users, so what a request opens of it must be checked. Here: a
reference (``StoredRef``) and the search of a request without decoding it (``StoredFields``); each
family names its own fields. Only fields by which a vendor opens something count, not those that
repeat in the history what an answer said; arguments and schemas of tools are not read. Imported by
the families and the relay.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from adapters.faults import Condition, Fault
from adapters.json.jsonio import Spans, Struct, elements, loads_unique
from adapters.json.structure import Steps

MAX_REFS = 1000  # ids that one request may name
SEARCHED_BYTES = 1 << 20  # of a large body at a time: a millisecond
MAX_NAME_BYTES = 64  # of a field that is looked for, with quotes, and of an escape in it

Kind = Literal["answer", "either", "given", "thread", "tool"]


class StoredRef(Struct, frozen=True, gc=False):
    """Reference of a request to what an upstream account stores: the path of the field and the id.

    ``kind``: "answer": made by an answer, its user's alone; "either": made by an answer or outside
    of the gateway; "given": made outside; "thread": no id, the upstream is asked to keep the
    conversation; "tool": no id, the feature that a tool asks for. ``alone``: an id that nobody here
    knows may go to the only channel there is. ``details``: of the fault that refuses it, for
    clients that act on them.
    """

    kind: Kind
    param: str
    id: str
    alone: bool = False
    details: Mapping[str, object] | None = None


class StoredRefs:
    """The references of one request, each id once; readers of its fields raise Fault INVALID_FIELD
    when an object in one has a key twice."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._refs: dict[tuple[Kind, str], StoredRef] = {}

    def field(self, name: str) -> Any:
        """Return the decoded value of a top-level field; None when it is absent."""
        text = self._spans.raw(name)
        return None if text is None else loads_unique(text, name)

    def elements(
        self, name: str, marks: "FieldMarks", each: Callable[[Any, str], None]
    ) -> Steps[None]:
        """Call ``each`` with value and path of an array's elements with a mark, in steps."""
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
        """Add an id, unless it is empty or no text. Raise INVALID_FIELD for more than MAX_REFS."""
        if not isinstance(value, str) or not value:
            return
        self._refs.setdefault((kind, value), StoredRef(kind, param, value, **more))
        if len(self._refs) > MAX_REFS:
            detail = f"the request names more than {MAX_REFS} kept things"
            raise Fault(Condition.INVALID_FIELD, f"{detail}.", param=param, detail=detail)

    def add_at(self, kind: Kind, value: object, path: str, *names: str, **more: Any) -> None:
        """Add the ids under ``names``, one inside the other, of the objects in a value."""
        for place, inner in inner_values(value, path, *names):
            self.add(kind, place, inner, **more)

    def add_all(self, kind: Kind, param: str, values: object) -> None:
        """Add the ids of a list."""
        for index, value in enumerate(values if isinstance(values, list) else ()):
            self.add(kind, f"{param}[{index}]", value)

    def need_thread(self, param: str, details: Mapping[str, object]) -> None:
        """Add that the upstream is asked to keep the conversation."""
        self._refs["thread", ""] = StoredRef("thread", param, "", details=details)

    @property
    def all(self) -> tuple[StoredRef, ...]:
        """The references in their order."""
        return tuple(self._refs.values())


class FieldMarks:
    """Names of fields, one of which stands in every text that has a reference."""

    def __init__(self, *names: str) -> None:
        inner = "|".join(map(re.escape, names))
        self._plain = re.compile(rf'"(?:{inner})"'.encode())
        # Letters can be written otherwise only by escapes that begin with \\u00.
        self._escaped = re.compile(rf'"(?:(?:{inner})"|[A-Za-z_]*+\\u00)'.encode())

    def stand_in(self, text: bytes, start: int, end: int) -> bool:
        """Return true when one stands there, or a name with an escape."""
        pattern = self._plain if text.find(b"\\", start, end) < 0 else self._escaped
        return pattern.search(text, start, end) is not None


@dataclass(frozen=True, slots=True)
class StoredFields:
    """Fields by which requests of a family refer to what accounts store.

    ``fields``: top-level fields that may have a reference whenever they are present. ``marks``: by
    top-level field, names of which one stands in it when it has a reference. ``read`` adds a
    request's references, in steps; raises INVALID_FIELD for wrong types and doubled keys.
    """

    fields: frozenset[str]
    marks: tuple[tuple[str, FieldMarks], ...]
    read: Callable[[StoredRefs], Steps[None]]

    def may_name(self, spans: Spans) -> bool:
        """Return true when a request may have references; nothing of it is decoded."""
        places = spans.places
        if not self.fields.isdisjoint(places):
            return True
        for name, marks in self.marks:
            place = places.get(name)
            if place is not None and marks.stand_in(spans.body, place.start, place.end):
                return True
        return False

    def may_name_steps(self, spans: Spans) -> Steps[bool]:
        """Return ``may_name`` of a large request, in steps."""
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
"""Of a family whose requests name nothing."""


def objects(value: object, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the objects of a list with their paths; of an object, that alone."""
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
    """Yield the values under ``names``, one inside the other, with their paths."""
    if not names:
        yield path, value
        return
    for place, holder in objects(value, path):
        for name in spellings(names[0]):
            if name in holder:
                inner = f"{place}.{name}"
                yield from inner_values(holder[name], inner, *names[1:], spellings=spellings)

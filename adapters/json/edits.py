"""Edits of a JSON object by paths: values are removed, added if absent, or replaced.

Bytes outside the paths stay unchanged. Imported by the relay, for channels with such edits and for
fields that an upstream refuses.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, cast

from adapters.json.jsonio import Spans, dumps_text, elements, inner_level

# "remove"; "prune": removes the value, and objects that are empty then
_Kind = Literal["remove", "prune", "default", "set"]
Path = tuple[str, ...]
Edit = tuple[str, Path, bytes | None]  # a kind except "prune", a path, the new value in JSON
_ALL = "*"  # in a path: all elements of an array, or all fields of an object
_NULL = b"null"


def edited(spans: Spans, edits: Iterable[Edit]) -> bytes:
    """Return the body of ``spans`` with the edits; the same object if nothing changes. Raises Fault
    INVALID_FIELD if an object on a path has a duplicate key."""
    values: dict[str, bytes | None] = {}
    for kind, path, value in edits:
        _edit(spans, values, path, cast(_Kind, kind), value)
    return _with(spans, values)


def without_fields(spans: Spans, paths: Iterable[Path]) -> tuple[bytes, list[Path]]:
    """Return the body without the values at the paths and without objects that are empty then, and
    the paths where a value was found. Raises Fault as ``edited`` does."""
    values: dict[str, bytes | None] = {}
    removed = [path for path in paths if _edit(spans, values, path, "prune")]
    return _with(spans, values), removed


def _edit(
    spans: Spans,
    values: dict[str, bytes | None],
    path: Path,
    kind: _Kind,
    value: bytes | None = None,
) -> bool:
    """Make one edit of the changed top-level ``values``. Return whether it changed anything."""
    name = path[0]
    before = values[name] if name in values else spans.raw(name)
    after = _changed(before, path[1:], kind, value)
    if after is before:
        return False
    values[name] = after
    return True


def _changed(text: bytes | None, path: Path, kind: _Kind, value: bytes | None) -> bytes | None:
    """Return a value after an edit (None: absent); the same object if nothing changes."""
    if not path:
        return text if kind == "default" and text not in (None, _NULL) else value
    if text is None or text == _NULL:
        return text if value is None or _ALL in path else _nested(path, value)
    if text.startswith(b"{"):
        return _changed_object(text, path, kind, value)
    if text.startswith(b"["):
        return _changed_array(text, path, kind, value)
    return _nested(path, value) if kind == "set" and value and _ALL not in path else text


def _changed_object(text: bytes, path: Path, kind: _Kind, value: bytes | None) -> bytes | None:
    spans, changes = inner_level(text), dict[str, bytes | None]()
    for name in list(spans.places) if path[0] == _ALL else path[:1]:
        before = spans.raw(name)
        after = _changed(before, path[1:], kind, value)
        if after is not before:
            changes[name] = after
    if not changes:
        return text
    if kind == "prune" and all(name in changes and changes[name] is None for name in spans.places):
        return None
    return _with(spans, changes)


def _changed_array(text: bytes, path: Path, kind: _Kind, value: bytes | None) -> bytes | None:
    before = [bytes(element) for element in elements(text) or ()]
    after = [
        _changed(element, path[1:], kind, value) if path[0] in (_ALL, str(index)) else element
        for index, element in enumerate(before)
    ]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return text
    if kind == "prune":  # the other elements keep their indexes
        after = [b"{}" if element is None else element for element in after]
    return b"[" + b",".join(element for element in after if element is not None) + b"]"


def _nested(path: Path, value: bytes) -> bytes:
    for name in reversed(path):
        value = b"{%b:%b}" % (dumps_text(name), value)
    return value


def _with(spans: Spans, values: Mapping[str, bytes | None]) -> bytes:
    """Return the object with new values for some fields (None: removed); new fields come last."""
    if not values:
        return spans.body
    body, at, pieces, removed = spans.body, spans.opening, list[bytes](), False
    for name, place in sorted(spans.places.items(), key=lambda item: item[1]):
        key = body[at : place.start]  # including the comma before it
        value = values[name] if name in values else body[place.start : place.end]
        at = place.end
        if value is not None:
            pieces += (key if pieces or not removed else key.lstrip(b", \t\r\n"), value)
        removed = removed or value is None
    for name, value in values.items():
        if value is not None and name not in spans.places:
            pieces.append(b"%b%b:%b" % (b"," if pieces else b"", dumps_text(name), value))
    return b"".join((body[: spans.opening], *pieces, body[at:]))

"""Single edits given as values, as a JSON body or a form gives them, as an entry of the document.

The values are those of the document's section, but env: and file: are not read, and no path is
opened: whoever edits from afar may not see what this machine holds. Faults know the field they are
about. Only apply.py needs it. Pure.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from store.admin.document import ENV_PREFIX, FILE_PREFIX, Entry, Report, label, parse_entry
from store.admin.kinds import KINDS
from store.admin.objects import Stored
from store.db.audit import MASK
from store.values.errors import Refused

_END = "\0"
"""Ends the name of a field where `Place` puts it before a fault; no fault holds it."""


def entry_of_values(kind: str, values: Mapping[str, object], stored: Stored | None) -> Entry:
    """An entry with the fields that the values give; `stored`: the object they change, None for a
    new one. Refused with all faults, each marked with its field: read them by `told_by_field`."""
    faults: list[str] = []
    raw = dict(values)
    spec = KINDS[kind]
    if stored is not None:
        for part, name in zip(spec.identity, stored.identity, strict=True):
            if raw.setdefault(part, name) != name:
                faults.append(f"{_place(part)}{part} cannot be changed: it is the identity")
                raw[part] = name
        for name in [one for one in raw if one in spec.fields and spec.fields[one].once]:
            where = label(kind, stored.identity)
            faults.append(f"{_place(name)}{where}: {name} counts only when a {kind} is made")
            del raw[name]
    for name, value in list(raw.items()):
        if name in spec.fields and spec.fields[name].secret and _is_masked(value):
            faults.append(f"{_place(name)}{MASK} stands for what is not shown; leave {name} out")
            del raw[name]
    for name in [one for one in raw if one in spec.fields and spec.fields[one].local]:
        there = stored.fields[name] if stored is not None else None
        if raw[name] not in (None, there):
            faults.append(f"{_place(name)}{name}: paths of files are set by commands only")
        if raw[name] is not None:
            del raw[name]  # what stays is not opened either
    report = Report(faults, f"{kind} without a name", _place)
    entry = parse_entry(kind, raw, report, _literal)
    if faults or entry is None:
        raise Refused(faults)
    return entry


@contextmanager
def told_by_field() -> Iterator[None]:
    """Refusals of entries from here tell their fields in `Refused.fields`, not in their words."""
    try:
        yield
    except Refused as error:
        parted = [fault.rpartition(_END) for fault in error.faults]
        fields = [field.partition(".")[0] for field, _, _ in parted]
        raise Refused([fault for _, _, fault in parted], fields) from None


def _place(name: str) -> str:
    return f"{name}{_END}"


def _is_masked(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_is_masked, value.values()))
    if isinstance(value, list):
        return any(map(_is_masked, value))
    return isinstance(value, str) and MASK in value


def _literal(value: object) -> Any:
    """The value itself; ValueError for one that a command would read from elsewhere."""
    if isinstance(value, list):
        return [_literal(element) for element in value]
    if isinstance(value, dict):
        return {name: _literal(element) for name, element in value.items()}
    if isinstance(value, str) and value.startswith((ENV_PREFIX, FILE_PREFIX)):
        raise ValueError("values env: and file: are read by commands only; give the value itself")
    return value

"""The names in a vendor's list of models: a page of it as vendors write it, read leniently."""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.faults import Condition, Fault
from adapters.json.jsonio import loads_loose


def page(body: bytes, field: str) -> list[Mapping[str, Any]]:
    """The entries of a page, which has them in a field; UPSTREAM_INVALID when it is none."""
    try:
        said = loads_loose(body)
    except ValueError:
        raise Fault(Condition.UPSTREAM_INVALID) from None
    entries = said.get(field) if isinstance(said, dict) else None
    if not isinstance(entries, list):
        raise Fault(Condition.UPSTREAM_INVALID)
    return [entry for entry in entries if isinstance(entry, dict)]


def names(entries: Sequence[Mapping[str, Any]], field: str) -> list[str]:
    """What entries are called, each once, in their order."""
    found = (entry.get(field) for entry in entries)
    return list(dict.fromkeys(name for name in found if isinstance(name, str) and name))


def by_id(body: bytes) -> list[str]:
    """The names in a page of three of the families; raises as `page`."""
    return names(page(body, "data"), "id")

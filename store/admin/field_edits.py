"""Single edits of the command line, `field=value` each, as an entry of the document.

Pure but for env: and file: values. Only apply.py needs it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from store.admin.document import Entry, Report, label, parse_entry, resolver
from store.admin.kinds import KINDS
from store.admin.objects import Stored
from store.values.errors import Refused
from store.values.fields import HeaderMap, ModelMap, OptionMap, PriceTable


def entry_of_edits(
    kind: str, edits: Mapping[str, str], stored: Stored | None, environ: Mapping[str, str]
) -> Entry:
    """An entry with the fields that the edits give; Refused with all faults.

    `stored`: the object they change, whose identity the entry takes; None for a new one, then
    the edits hold the identity. `price.input=2` and `models.PUBLIC=UPSTREAM` reach inside.
    """
    raw: dict[str, Any] = {}
    faults: list[str] = []
    for name, text in edits.items():
        if stored is not None and name in KINDS[kind].identity:
            faults.append(f"{name} cannot be changed: it is the identity of a {kind}")
            continue
        if stored is not None and name in KINDS[kind].fields and KINDS[kind].fields[name].once:
            cure = "money is moved with: ./sluice wallet credit"
            where = label(kind, stored.identity)
            faults.append(f"{where}: {name} counts only when a {kind} is made; {cure}")
            continue
        _take_edit(kind, raw, (name, text), stored)
    if stored is not None:
        raw |= zip(KINDS[kind].identity, stored.identity, strict=True)
    report = Report(faults, f"{kind} without a name")
    entry = parse_entry(kind, raw, report, resolver(environ, Path()))
    if faults or entry is None:
        raise Refused(faults)
    return entry


def with_identity(kind: str, name: str, edits: Mapping[str, str]) -> dict[str, str]:
    """The edits of a new object with its identity, whose last part is `name`.

    Of two parts the first is among the edits, or the name is written FIRST/LAST.
    """
    identity = list(KINDS[kind].identity)
    parts = name.split("/")
    if len(identity) == len(parts) == 2 and identity[0] not in edits:
        return {**edits, **dict(zip(identity, parts, strict=True))}
    return {**edits, identity[-1]: name}


def _take_edit(
    kind: str, raw: dict[str, Any], edit: tuple[str, str], stored: Stored | None
) -> None:
    name, text = edit
    fields = KINDS[kind].fields
    if name in fields:
        raw[name] = fields[name].type.from_text(text)
        return
    outer, point, inner = name.partition(".")
    spec = fields.get(outer) if point else None
    if spec is not None and isinstance(spec.type, PriceTable):
        raw.setdefault(outer, {})[inner] = text or None
    elif spec is not None and isinstance(spec.type, (ModelMap, HeaderMap, OptionMap)):
        table = raw.setdefault(outer, dict(stored.fields[outer]) if stored else {})
        inner = inner.lower() if isinstance(spec.type, HeaderMap) else inner
        if text and isinstance(spec.type, OptionMap):
            table[inner] = spec.type.value_from_text(text)
        elif text:
            table[inner] = text
        else:
            table.pop(inner, None)
    else:
        # An identity, or unknown: parse_entry tells which.
        raw[name] = text

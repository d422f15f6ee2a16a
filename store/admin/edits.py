"""Single edits as an entry of the document: texts of the command line, `field=value` each, or
values, as in a JSON body or a form.

Texts may be env: and file: values, with relative paths from the current folder. Values are never
read from elsewhere and open no path, since a remote editor must not see the contents of this
machine. Faults of values know their field.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from store.admin.document import PREFIXES, Entry, Report, label, parse_entry, resolver
from store.admin.kinds import KINDS
from store.admin.objects import Stored
from store.db.audit import MASK
from store.values.errors import Refused
from store.values.fields import HeaderMap, Instant, ModelMap, OptionMap
from store.values.price_fields import PriceChanges, PriceTable, RateList

FROM = "from"
"""For `model set`: the time from which the given prices apply."""
_PRICE = "price"
_RATE = "rate"
_CHANGES = "price_changes"
_END = "\0"
"""Ends the name of a field where `_place` puts it before a fault. No fault contains it."""


def entry_of_texts(
    kind: str, edits: Mapping[str, Any], stored: Stored | None, environ: Mapping[str, str]
) -> Entry:
    """Return an entry with the fields of the edits. Raises Refused with all faults.

    `stored` is the object to change, whose identity the entry takes. It is None for a new object;
    then the edits contain the identity. `price.input=2` and `models.PUBLIC=UPSTREAM` change inner
    fields. With `from=TIME` the given prices apply from then on, and the others stay as they are
    then. An edit that is not a text is a value of the document.
    """
    raw: dict[str, Any] = {}
    faults: list[str] = []
    if kind == "model" and stored is not None and FROM in edits:
        edits, raw = _price_from(edits, stored)
    for name, text in edits.items():
        if stored is not None and name in KINDS[kind].identity:
            faults.append(f"{name} cannot be changed: it is the identity of a {kind}")
            continue
        if stored is not None and name in KINDS[kind].fields and KINDS[kind].fields[name].once:
            remedy = "money is moved with: ./sluice wallet credit"
            where = label(kind, stored.identity)
            faults.append(f"{where}: {name} counts only when a {kind} is made; {remedy}")
            continue
        _take_edit(kind, raw, (name, text), stored)
    if stored is not None:
        raw |= zip(KINDS[kind].identity, stored.identity, strict=True)
    report = Report(faults, f"{kind} without a name")
    entry = parse_entry(kind, raw, report, resolver(environ, Path()))
    if faults or entry is None:
        raise Refused(faults)
    return entry


def _price_from(edits: Mapping[str, str], stored: Stored) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the edits without `from` and prices, and the prices as `price_changes`. Raises
    Refused."""
    where, inner = label("model", stored.identity), f"{_PRICE}."
    prices_given = {
        name[len(inner) :]: text for name, text in edits.items() if name.startswith(inner)
    }
    if not prices_given:
        raise Refused([f"{where}: from: goes with the prices that change then: price.input=2 …"])
    try:
        from_ms = Instant().parse(edits[FROM])
    except ValueError as error:
        raise Refused([f"{where}: from: {error}"]) from None
    changes = stored.fields[_CHANGES]
    before = [change for change in changes if change[0] <= from_ms]
    _, in_force, rates = before[-1] if before else (0, stored.fields[_PRICE], stored.fields[_RATE])
    prices: dict[str, Any] = {**PriceTable().plain(in_force), _RATE: RateList().plain(rates)}
    prices |= {name: text or None for name, text in prices_given.items()}
    later_changes = PriceChanges().plain([change for change in changes if change[0] != from_ms])
    rest = {
        name: text for name, text in edits.items() if name != FROM and not name.startswith(inner)
    }
    return rest, {_CHANGES: [*later_changes, {"from": edits[FROM], **prices}]}


def with_identity(kind: str, name: str, edits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the edits of a new object with its identity, whose last part is `name`. If it has two
    parts, the first is in the edits, or the name is written FIRST/LAST."""
    identity = list(KINDS[kind].identity)
    parts = name.split("/")
    if len(identity) == len(parts) == 2 and identity[0] not in edits:
        return {**edits, **dict(zip(identity, parts, strict=True))}
    return {**edits, identity[-1]: name}


def _take_edit(
    kind: str, raw: dict[str, Any], edit: tuple[str, Any], stored: Stored | None
) -> None:
    name, text = edit
    fields = KINDS[kind].fields
    if name in fields:
        raw[name] = fields[name].type.from_text(text) if isinstance(text, str) else text
        return
    outer, point, inner = name.partition(".")
    spec = fields.get(outer) if point else None
    if spec is not None and isinstance(spec.type, PriceTable):
        prices = PriceTable().plain(stored.fields[outer]) if stored else {}
        raw.setdefault(outer, prices)[inner] = text or None
    elif spec is not None and isinstance(spec.type, (ModelMap, HeaderMap, OptionMap)):
        table = raw.setdefault(outer, dict(spec.type.plain(stored.fields[outer])) if stored else {})
        inner = inner.lower() if isinstance(spec.type, HeaderMap) else inner
        if text and isinstance(spec.type, OptionMap):
            table[inner] = spec.type.value_from_text(text)
        elif text:
            table[inner] = text
        else:
            table.pop(inner, None)
    else:
        # An identity, or unknown: parse_entry decides.
        raw[name] = text


def entry_of_values(kind: str, values: Mapping[str, object], stored: Stored | None) -> Entry:
    """Return an entry with the given values. `stored`: the object to change, None for a new one.
    Raises Refused with all faults, each marked with its field: see `faults_by_field`."""
    faults: list[str] = []
    raw = dict(values)
    spec = KINDS[kind]
    if stored is not None:
        for part, name in zip(spec.identity, stored.identity, strict=True):
            if raw.setdefault(part, name) != name:
                faults.append(f"{_place(part)}{part} cannot be changed: it is the identity")
                raw[part] = name
        for name in [name for name in raw if name in spec.fields and spec.fields[name].once]:
            where = label(kind, stored.identity)
            faults.append(f"{_place(name)}{where}: {name} counts only when a {kind} is made")
            del raw[name]
    for name, value in list(raw.items()):
        if name in spec.fields and spec.fields[name].secret and _is_masked(value):
            faults.append(f"{_place(name)}{MASK} stands for what is not shown; leave {name} out")
            del raw[name]
    for name in [name for name in raw if name in spec.fields and spec.fields[name].local]:
        current = stored.fields[name] if stored is not None else None
        if raw[name] not in (None, current):
            faults.append(f"{_place(name)}{name}: paths of files are set by commands only")
        if raw[name] is not None:
            del raw[name]  # an unchanged path is not opened either
    prices = raw.get(_PRICE)
    if stored is not None and isinstance(prices, dict):
        raw[_PRICE] = PriceTable().plain(stored.fields[_PRICE]) | prices
    report = Report(faults, f"{kind} without a name", _place)
    entry = parse_entry(kind, raw, report, _literal)
    if faults or entry is None:
        raise Refused(faults)
    return entry


@contextmanager
def faults_by_field() -> Iterator[None]:
    """Move the fields of refused entries from the texts of the faults to `Refused.fields`."""
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
    """Return the value itself. Raises ValueError for one that a command would read from
    elsewhere."""
    if isinstance(value, list):
        return [_literal(element) for element in value]
    if isinstance(value, dict):
        return {name: _literal(element) for name, element in value.items()}
    if isinstance(value, str) and value.startswith(PREFIXES):
        raise ValueError("values env: and file: are read by commands only; give the value itself")
    return value

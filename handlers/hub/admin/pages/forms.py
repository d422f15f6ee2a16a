"""Forms of administered objects: made from the table of fields that `apply` reads, and read back
into the values of its document.

What is secret is never shown again: an empty field keeps it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from store.admin.kinds import KINDS, REQUIRED, Field
from store.db.audit import MASK
from store.values.fields import (
    NAME,
    Boolean,
    Choice,
    FieldType,
    HeaderMap,
    Instant,
    Integer,
    ListOf,
    ModelMap,
    Optional,
    OptionMap,
    PriceChanges,
    PriceTable,
)
from store.values.pricing import PRICE_NAMES

FURTHER: Mapping[str, frozenset[str]] = {
    "group": frozenset({"rpm", "tpm", "concurrency", "translate"}),
    "user": frozenset({"rpm", "tpm", "concurrency"}),
    "channel": frozenset(
        {"rpm", "tpm", "concurrency", "key_rpm", "key_tpm", "key_concurrency", "translate"}
        | {"extra_headers", "proxy", "ca_file", "options", "draining"}
        | {"shared_ids"}
    ),
}
"""Fields that are seldom needed: they stand behind "More" in a form."""

MAX_CHECKS = 24  # more names than that are typed, one a line
MAX_CHOICES = 200  # more names than that are typed
_LINES = re.compile(r"\s*[\r\n]+\s*")
_GAPS = re.compile(r"[\s,]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

Typed = Mapping[str, Sequence[str]]
"""What a form has sent: the values of each name."""


@dataclass(frozen=True, slots=True)
class Item:
    """A field as a form shows it. `way`: text, number, check, choice, checks, lines, prices,
    secret, secret_lines; `values`: what is in it or chosen; `kept`: how many secrets there are."""

    name: str
    way: str
    values: Sequence[str]
    options: Sequence[str] = ()
    required: bool = False
    further: bool = False
    kept: int = 0
    problem: str = ""
    prices: Mapping[str, str] = field(default_factory=dict)

    @property
    def value(self) -> str:
        """The text of a field with one value."""
        return self.values[0] if self.values else ""


@dataclass(frozen=True, slots=True)
class Given:
    """What a form is filled with: an object (None: a new one, which begins with `begun`), what was
    typed before, the fault of a field, and the names that some fields choose from."""

    stored: Mapping[str, Any] | None = None
    begun: Mapping[str, Any] = field(default_factory=dict)
    typed: Typed | None = None
    problems: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)


def items(kind: str, given: Given) -> list[Item]:
    """The fields of a form for an object of a kind."""
    spec = KINDS[kind]
    found = []
    if given.stored is None:
        found = [
            _item(kind, name, Field(type_, ""), given) for name, type_ in spec.identity.items()
        ]
    for name, one in spec.fields.items():
        if (one.once and given.stored is not None) or isinstance(one.type, PriceChanges):
            continue
        if one.local and not (given.stored or {}).get(name):
            continue  # commands alone set it; here it can be taken away
        found.append(_item(kind, name, one, given))
    return found


def values(kind: str, typed: Typed, *, new: bool) -> dict[str, Any]:
    """The document values that a form has sent; faults are found by who judges them."""
    spec, found = KINDS[kind], {}
    if new:
        found = {name: (typed.get(name) or [""])[0].strip() for name in spec.identity}
    for name, one in spec.fields.items():
        if (not new and one.once) or isinstance(one.type, PriceChanges):
            continue  # no form has prices to come: the JSON API and commands do
        sent = [text for text in typed.get(name, ()) if text.strip()]
        value = _value(name, one, typed, sent, new=new)
        if value is not _LEFT_OUT:
            found[name] = value
    return found


_LEFT_OUT: Any = object()


def _value(name: str, one: Field, typed: Typed, sent: Sequence[str], *, new: bool) -> Any:
    kind = _inner(one.type)
    if isinstance(kind, Boolean):
        return bool(sent)
    if isinstance(kind, PriceTable):
        return _prices(typed, new=new)
    text = sent[0].strip() if sent else ""
    if one.secret and (not sent or MASK in text):
        # Not for a proxy, which is shown: nothing in its field takes it back.
        return None if name == "proxy" and not sent and not new else _LEFT_OUT
    if isinstance(kind, ListOf):
        # Names of groups may hold blanks and commas; nothing else that is listed may.
        gaps = _LINES if kind.item is NAME else _GAPS
        return [part for text in sent for part in gaps.split(text.strip()) if part]
    if isinstance(kind, (ModelMap, HeaderMap, OptionMap)):
        return _table(kind, sent)
    if not text:
        return None if isinstance(one.type, Optional) else _LEFT_OUT
    if isinstance(kind, Instant) and _DATE.fullmatch(text):
        return f"{text}T00:00:00Z"
    return kind.from_text(text)


def _prices(typed: Typed, *, new: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in PRICE_NAMES:
        text = (typed.get(f"price.{name}") or [""])[0].strip()
        if text:
            found[name] = text
        elif not new and name not in ("input", "output", "call"):
            found[name] = None
    return found


def _table(kind: FieldType, sent: Sequence[str]) -> dict[str, Any]:
    """Lines `name = value`; a name alone stands for itself."""
    found: dict[str, Any] = {}
    mark = ":" if isinstance(kind, HeaderMap) else "="
    for line in (line.strip() for text in sent for line in text.splitlines()):
        if not line:
            continue
        name, _, value = (part.strip() for part in line.partition(mark))
        found[name] = kind.value_from_text(value) if isinstance(kind, OptionMap) else value or name
    return found


def _inner(kind: FieldType) -> FieldType:
    return kind.inner if isinstance(kind, Optional) else kind


def _item(kind: str, name: str, one: Field, given: Given) -> Item:
    inner = _inner(one.type)
    stored = None if given.stored is None else given.stored.get(name)
    options = _options(name, inner, given)
    way = _way(name, one, inner, options)
    kept = len(stored) if isinstance(stored, (list, dict)) else int(stored is not None)
    return Item(
        name=name,
        way=way,
        values=_shown(name, one, way, given),
        options=options,
        required=one.default is REQUIRED and not one.secret,
        further=name in FURTHER.get(kind, ()),
        kept=kept if one.secret else 0,
        problem=given.problems.get(name, ""),
        prices=_shown_prices(given) if way == "prices" else {},
    )


def _options(name: str, inner: FieldType, given: Given) -> Sequence[str]:
    if isinstance(inner, Choice):
        return list(inner.options)
    if isinstance(inner, ListOf) and isinstance(inner.item, Choice):
        return list(inner.item.options)
    return given.names.get(name, ())


def _way(name: str, one: Field, inner: FieldType, options: Sequence[str]) -> str:
    if isinstance(inner, Boolean):
        return "check"
    if isinstance(inner, PriceTable):
        return "prices"
    if one.secret and name != "proxy":
        return "secret" if name == "password" else "secret_lines"
    if isinstance(inner, ListOf):
        return "checks" if 0 < len(options) <= MAX_CHECKS else "lines"
    if isinstance(inner, (ModelMap, HeaderMap, OptionMap)):
        return "lines"
    if 0 < len(options) <= MAX_CHOICES:
        return "choice"
    return "number" if isinstance(inner, Integer) else "text"


def _shown(name: str, one: Field, way: str, given: Given) -> list[str]:
    """What stands in a field: what was typed, else what the object has, else the default."""
    if way in ("secret", "secret_lines", "prices"):
        return []
    if given.typed is not None:
        return list(given.typed.get(name, ()))
    if given.stored is not None:
        value = given.stored.get(name)
    elif name in given.begun:
        value = given.begun[name]
        if one.secret and MASK in str(value):
            value = None
    else:
        value = None if one.default is REQUIRED else one.default
        value = one.type.plain(value) if value is not None else None
    if value is None or value is False:
        return []
    if isinstance(value, dict):
        return ["\n".join(_line(name, inner) for name, inner in value.items())]
    if isinstance(value, list):
        return list(map(str, value)) if way == "checks" else ["\n".join(map(str, value))]
    return ["true" if value is True else str(value)]


def _line(name: str, value: Any) -> str:
    if value == name:
        return name
    return f"{name} = {value if isinstance(value, str) else json.dumps(value)}"


def _shown_prices(given: Given) -> dict[str, str]:
    if given.typed is not None:
        return {name: (given.typed.get(f"price.{name}") or [""])[0] for name in PRICE_NAMES}
    stored = (given.stored or {}).get("price", {})
    return {name: stored.get(name, "") for name in PRICE_NAMES}

"""Forms of administered objects: generated from the table of fields that `apply` uses, and
converted back to values of its document.

Secrets are never shown again. An empty field keeps the stored one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from adapters.vendor_cards import CARDS
from handlers.hub.admin import price_forms
from handlers.hub.admin.price_forms import PriceGroup, RateRow, Submitted
from store.admin.kinds import FEATURE, KINDS, NAME, REQUIRED, Field
from store.db.audit import MASK
from store.values import fields as types
from store.values.channel_fields import BodyMap
from store.values.features import ALL, FEATURES, allowed_features, words_of
from store.values.price_fields import PriceTable, RateList

ADVANCED: Mapping[str, frozenset[str]] = {
    "group": frozenset({"rpm", "tpm", "concurrency", "translate", "features"}),
    "user": frozenset({"rpm", "tpm", "concurrency"}),
    "channel": frozenset(
        {"rpm", "tpm", "concurrency", "key_rpm", "key_tpm", "key_concurrency", "translate"}
        | {"extra_headers", "proxy", "ca_file", "options", "draining"}
        | {"shared_ids", "cost_factor", "cost", "body", "remove_headers", "model_times"}
        | {"first_byte_timeout_s", "idle_timeout_s", "retry_timeouts"}
    ),
}
"""Fields that are rarely needed, which a form hides behind "More"."""

MAX_CHECKBOXES = 24  # beyond this, names are typed, one per line
MAX_OPTIONS = 200  # beyond this, names are typed
_LINES = re.compile(r"\s*[\r\n]+\s*")
_GAPS = re.compile(r"[\s,]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class FormField:
    """A field as a form shows it. `widget`: text, number, check, choice, checks, features, lines,
    prices, rates, secret, secret_lines. `values`: its contents, or the chosen options. `secrets`:
    the number of stored secrets. `named`: the options are names, which need no translation.
    `prices` and `rates`: the contents of the widgets with these names."""

    name: str
    widget: str
    values: Sequence[str]
    options: Sequence[str] = ()
    required: bool = False
    advanced: bool = False
    secrets: int = 0
    named: bool = False
    problem: str = ""
    prices: Sequence[PriceGroup] = ()
    rates: Sequence[RateRow] = ()

    @property
    def value(self) -> str:
        """Return the text of a field with one value."""
        return self.values[0] if self.values else ""

    @property
    def problem_at(self) -> str:
        """Return the meter that a problem of prices is about: its first word."""
        return re.split("[: ]", self.problem, maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class FormContents:
    """The contents of a form. `stored`: the stored object, None for a new one, which has
    `defaults`. `submitted`: what was submitted before. `problems`: by field. `names`: the names to
    choose from, by field. `merged`: the document's values that replace submitted ones."""

    stored: Mapping[str, Any] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    submitted: Submitted | None = None
    problems: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    merged: Mapping[str, Any] = field(default_factory=dict)

    def of(self, name: str) -> "FormContents":
        """Return the contents for a field."""
        if name not in self.merged:
            return self
        return replace(self, stored={**(self.stored or {}), **self.merged}, submitted=None)


_NOT_IN_FORMS = ("price_changes", "price_source")
"""Fields that only the JSON API and commands set."""


def vendor_label(words: Mapping[str, str], vendor: str) -> str:
    """Return the name of a vendor in the language of `words`."""
    label = CARDS[vendor].label if vendor in CARDS else vendor
    return words.get(f"new_channel.vendor_{vendor}", label)


def form_fields(kind: str, contents: FormContents) -> list[FormField]:
    """Return the fields of the form for an object of a kind."""
    spec = KINDS[kind]
    new = contents.stored is None
    fields = []
    if new:
        identity = {name: Field(type_, "") for name, type_ in spec.identity.items()}
        fields = [_form_field(kind, name, row, contents) for name, row in identity.items()]
    for name, row in spec.fields.items():
        if (row.once and not new) or name in _NOT_IN_FORMS:
            continue
        if row.local and not (contents.stored or {}).get(name):
            continue  # only commands can set it; a form can remove it
        fields.append(_form_field(kind, name, row, contents))
    return fields


def document_values(kind: str, submitted: Submitted, *, new: bool) -> dict[str, Any]:
    """Return the document's values for a submitted form, unchecked."""
    spec, values = KINDS[kind], {}
    if new:
        values = {name: (submitted.get(name) or [""])[0].strip() for name in spec.identity}
    for name, row in spec.fields.items():
        if (not new and row.once) or name in _NOT_IN_FORMS:
            continue
        texts = [text for text in submitted.get(name, ()) if text.strip()]
        value = _value(name, row, submitted, texts, new=new)
        if value is not _LEFT_OUT:
            values[name] = value
    return values


_LEFT_OUT: Any = object()


def _value(name: str, row: Field, submitted: Submitted, texts: Sequence[str], *, new: bool) -> Any:
    kind = _inner(row.type)
    if row.type is kind and isinstance(kind, types.Boolean):
        return bool(texts)
    if isinstance(kind, PriceTable):
        return price_forms.submitted_prices(submitted, new=new)
    if isinstance(kind, RateList):
        rates = price_forms.submitted_rates(submitted)
        return _LEFT_OUT if rates is None else rates
    text = texts[0].strip() if texts else ""
    if row.secret and (not texts or MASK in text):
        # Except for a proxy, which is shown, so an empty field removes it.
        return None if name == "proxy" and not texts and not new else _LEFT_OUT
    if isinstance(kind, types.ListOf):
        if kind.item is FEATURE:
            return words_of(texts)
        # Names of groups may contain spaces and commas; no other listed values may.
        gaps = _LINES if kind.item is NAME else _GAPS
        return [part for text in texts for part in gaps.split(text.strip()) if part]
    if isinstance(kind, (types.ModelMap, types.HeaderMap, types.OptionMap)):
        return _table(kind, texts)
    if not text:
        return None if isinstance(row.type, types.Optional) else _LEFT_OUT
    if isinstance(kind, types.Instant) and _DATE.fullmatch(text):
        return f"{text}T00:00:00Z"
    return kind.from_text(text)


def _table(kind: types.FieldType, texts: Sequence[str]) -> dict[str, Any]:
    """Parse lines `name = value`. A name alone has itself as its value."""
    table: dict[str, Any] = {}
    mark = ":" if isinstance(kind, types.HeaderMap) else "="
    for line in (line.strip() for text in texts for line in text.splitlines()):
        if not line:
            continue
        name, _, value = (part.strip() for part in line.partition(mark))
        table[name] = value or name
        if isinstance(kind, types.OptionMap):
            table[name] = kind.value_from_text(value)
    return table


def _inner(kind: types.FieldType) -> types.FieldType:
    return kind.inner if isinstance(kind, types.Optional) else kind


def _form_field(kind: str, name: str, row: Field, contents: FormContents) -> FormField:
    contents = contents.of(name)
    inner = _inner(row.type)
    stored = None if contents.stored is None else contents.stored.get(name)
    options = _options(name, row, contents)
    widget = _widget(name, row, inner, options)
    count = len(stored) if isinstance(stored, (list, dict)) else int(stored is not None)
    return FormField(
        name=name,
        widget=widget,
        values=_field_values(name, row, widget, contents),
        options=options,
        required=row.default is REQUIRED and not row.secret,
        advanced=name in ADVANCED.get(kind, ()),
        secrets=count if row.secret else 0,
        named=name in contents.names,
        problem=contents.problems.get(name, ""),
        prices=_price_groups(contents) if widget == "prices" else (),
        rates=_rate_rows(name, contents) if widget == "rates" else (),
    )


def _options(name: str, row: Field, contents: FormContents) -> Sequence[str]:
    inner = _inner(row.type)
    if row.type is not inner and isinstance(inner, types.Boolean):
        return ("", "true", "false")
    if isinstance(inner, types.Choice):
        return list(inner.options)
    if isinstance(inner, types.ListOf) and isinstance(inner.item, types.Choice):
        return list(inner.item.options)
    if isinstance(inner, types.ListOf) and inner.item is FEATURE:
        return [*FEATURES, ALL]
    return contents.names.get(name, ())


def _widget(name: str, row: Field, inner: types.FieldType, options: Sequence[str]) -> str:
    if row.type is inner and isinstance(inner, types.Boolean):
        return "check"
    if isinstance(inner, PriceTable):
        return "prices"
    if isinstance(inner, RateList):
        return "rates"
    if row.secret and name != "proxy":
        return "secret" if name == "password" else "secret_lines"
    if isinstance(inner, types.ListOf) and inner.item is FEATURE:
        return "features"
    if isinstance(inner, types.ListOf):
        return "checks" if 0 < len(options) <= MAX_CHECKBOXES else "lines"
    if isinstance(inner, (types.ModelMap, types.HeaderMap, types.OptionMap)):
        return "lines"
    if 0 < len(options) <= MAX_OPTIONS:
        return "choice"
    return "number" if isinstance(inner, types.Integer) else "text"


def _field_values(name: str, row: Field, widget: str, contents: FormContents) -> list[str]:
    """Return the contents of a field: the submitted ones, or the stored ones, or the default."""
    if widget in ("secret", "secret_lines", "prices", "rates"):
        return []
    if contents.submitted is not None:
        return list(contents.submitted.get(name, ()))
    if contents.stored is not None:
        value = contents.stored.get(name)
    elif name in contents.defaults:
        value = contents.defaults[name]
        if row.secret and MASK in str(value):
            value = None
    else:
        value = None if row.default is REQUIRED else row.default
        value = row.type.plain(value) if value is not None else None
    if value is None or (value is False and widget == "check"):
        return []
    if isinstance(row.type, BodyMap):
        return ["\n".join(f"{kind} = {json.dumps(edits)}" for kind, edits in value.items())]
    if isinstance(value, dict):
        return ["\n".join(_line(name, inner) for name, inner in value.items())]
    if widget == "features":
        return [*allowed_features(value), *(word for word in value if word == ALL)]
    if isinstance(value, list):
        return list(map(str, value)) if widget == "checks" else ["\n".join(map(str, value))]
    return [str(value).lower() if isinstance(value, bool) else str(value)]


def _line(name: str, value: Any) -> str:
    if value == name:
        return name
    if isinstance(value, dict):
        return f"{name} = {', '.join(f'{meter}={price}' for meter, price in value.items())}"
    return f"{name} = {value if isinstance(value, str) else json.dumps(value)}"


def _price_groups(contents: FormContents) -> list[PriceGroup]:
    if contents.submitted is not None:
        return price_forms.price_groups(price_forms.submitted_texts(contents.submitted))
    return price_forms.price_groups((contents.stored or {}).get("price", {}))


def _rate_rows(name: str, contents: FormContents) -> list[RateRow]:
    if contents.submitted is not None:
        return price_forms.submitted_rows(contents.submitted, contents.problems.get(name, ""))
    return price_forms.rate_rows((contents.stored or {}).get(name, []))

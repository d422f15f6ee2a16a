"""Forms of keys: what was typed as fields of the document's `[[key]]`, and back. Pure."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from store.hub.own_keys import OwnKey
from store.values.fields import Instant
from store.values.ids import DAY_MS
from store.values.pricing import format_money
from store.values.windows import NEVER, WINDOWS

EXPIRIES: Mapping[str, int] = {"1": 1, "30": 30, "90": 90}
"""Choices of the form, in days from now; beside them never, and a date."""
LIMIT_WINDOWS = (NEVER, *WINDOWS)
NUMBERS = ("rpm", "tpm", "concurrency")
FIELDS = (
    *("name", "group", "expires", "date", "limit", "limit_window", "models", "networks"),
    *NUMBERS,
)
_BETWEEN = re.compile(r"[\s,;]+")
_NUMBER = re.compile(r"[0-9]{1,19}")  # more digits than any limit has
_INSTANT = Instant()


@dataclass(frozen=True, slots=True)
class Typed:
    """What stands in the fields of a form; `problem` is a sentence about `field`, or about all."""

    fields: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    at: str = ""

    def get(self, name: str) -> str:
        """What stands in a field."""
        return self.fields.get(name, "")

    def wrong(self, name: str) -> str:
        """What is wrong with a field."""
        return self.problem if self.at == name else ""


def values_of(fields: Mapping[str, str], now_ms: int) -> dict[str, object]:
    """Document values of what was typed; what cannot be read stays text, for the editor to
    refuse."""
    values: dict[str, object] = {
        "group": fields["group"],
        "expires_at": _expires_at(fields["expires"], fields["date"], now_ms),
        "limit": fields["limit"].strip() or None,
        "limit_window": fields["limit_window"] or NEVER,
        "models": _words(fields["models"]),
        "networks": _words(fields["networks"]),
    }
    for name in NUMBERS:
        text = fields[name].strip()
        values[name] = int(text) if _NUMBER.fullmatch(text) else text or 0
    return values


def fields_of(key: OwnKey) -> dict[str, str]:
    """What the form of a key begins with."""
    expires = key.expires_ms
    return {
        "name": key.name,
        "group": key.group,
        "expires": "never" if expires is None else "date",
        "date": "" if expires is None else _day(expires),
        "limit": "" if key.limit_nanos is None else format_money(key.limit_nanos),
        "limit_window": key.limit_window,
        "models": ", ".join(key.models),
        "networks": ", ".join(key.networks),
        **{name: str(getattr(key, name) or "") for name in NUMBERS},
    }


def changed(values: Mapping[str, object], key: OwnKey) -> dict[str, object]:
    """The values without a time of expiry that the form shows by its day alone and that nobody
    touched."""
    same = (
        key.expires_ms is not None and values["expires_at"] == f"{_day(key.expires_ms)}T00:00:00Z"
    )
    return {name: value for name, value in values.items() if name != "expires_at" or not same}


def _expires_at(choice: str, date: str, now_ms: int) -> str | None:
    if choice in EXPIRIES:
        return _INSTANT.plain(now_ms - now_ms % 1000 + EXPIRIES[choice] * DAY_MS)
    return f"{date}T00:00:00Z" if choice == "date" else None


def _words(text: str) -> list[str]:
    return [word for word in _BETWEEN.split(text) if word]


def _day(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).strftime("%Y-%m-%d")

"""Kinds of rules: the settings of each, their checks and defaults.

A setting is stored as plain JSON, money as decimal text. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from store.values import texts
from store.values.errors import Refused
from store.values.pricing import AmountError, format_money, parse_money

BALANCE, KEY, CHANNEL_DOWN, ERRORS = "balance", "key", "channel_down", "errors"
SPENDING, UNPRICED, UPSTREAM_KEY, TROUBLE = "spending", "unpriced", "upstream_key", "trouble"

MAX_NAMES = 50
MAX_AGAIN_MINUTES = 30 * 24 * 60
AGAIN_MINUTES = 60
KEY_LEVELS = (80, 100)
"""Percentages of a key's limit at which a message is due."""
SPENDERS: Mapping[str, str] = {"user": "user", "key": "key_id", "group": "group"}
"""The columns of roll-ups by who spends. The gateway is the sum of all."""

Check = Callable[[Any], Any]


def _money(value: Any) -> str:
    try:
        nanos = parse_money(value if isinstance(value, str) else str(value))
    except AmountError as error:
        raise ValueError(str(error)) from None
    return format_money(nanos)


def _number(low: int, high: int) -> Check:
    def check(value: Any) -> int:
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return value

    return check


def _choice(*words: str) -> Check:
    def check(value: Any) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return str(value)

    return check


def _names(value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > MAX_NAMES:
        raise ValueError(f"must be a list of at most {MAX_NAMES} names")
    if not all(isinstance(name, str) for name in value):
        raise ValueError("must be a list of names")
    return [texts.name(name) for name in dict.fromkeys(value)]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a kind: its default, and the check of a value, which raises ValueError."""

    default: Any
    check: Check


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of rules. `own`: members may have it for themselves. `grave`: a firing is an outage,
    not a warning. `windowed`: it sends one message a window, and nothing at its end."""

    settings: Mapping[str, Setting]
    own: bool = False
    grave: bool = False
    windowed: bool = False


_NAMES = Setting([], _names)
KINDS: Mapping[str, Kind] = {
    BALANCE: Kind({"below": Setting("5", _money), "names": _NAMES}, own=True),
    KEY: Kind({}, own=True, windowed=True),
    CHANNEL_DOWN: Kind(
        {
            "state": Setting("down", _choice("down", "degraded")),
            "minutes": Setting(2, _number(0, 1440)),
            "names": _NAMES,
        },
        grave=True,
    ),
    ERRORS: Kind(
        {
            "percent": Setting(3, _number(1, 100)),
            "minutes": Setting(10, _number(1, 60)),
            "calls": Setting(50, _number(1, 1_000_000)),
            "names": _NAMES,
        }
    ),
    SPENDING: Kind(
        {
            "above": Setting("15", _money),
            "window": Setting("day", _choice("day", "month")),
            "of": Setting("user", _choice("gateway", "user", "key", "group")),
            "names": _NAMES,
        },
        own=True,
        windowed=True,
    ),
    UNPRICED: Kind({}, windowed=True),
    UPSTREAM_KEY: Kind({"names": _NAMES}),
    TROUBLE: Kind({}, grave=True),
}
"""The kinds, in the order of the forms. `names` selects objects; empty: all of them."""

FIRST_FOUR = (CHANNEL_DOWN, ERRORS, BALANCE, UNPRICED)
OWN_FIRST = (BALANCE, KEY)
"""The rules proposed if there are none, for the gateway and for a member."""

OWN_PAGES = {BALANCE: "/wallet", KEY: "/keys", SPENDING: "/usage"}
"""The pages for the owner of a firing object."""


def checked(kind: str, values: Mapping[str, Any], *, own: bool) -> dict[str, Any]:
    """Return all settings of a rule, with defaults for missing ones. Raises Refused."""
    row = KINDS.get(kind)
    if row is None or (own and not row.own):
        kinds = ", ".join(name for name, row in KINDS.items() if row.own or not own)
        raise Refused([f"kind must be one of {kinds}"], ["kind"])
    faults = {name: f"{kind} has no setting {name}" for name in values.keys() - row.settings.keys()}
    settings = {}
    for name, setting in row.settings.items():
        try:
            settings[name] = setting.check(values.get(name, setting.default))
        except ValueError as error:
            faults[name] = f"{name} {error}"
    if own and settings.get("of", "user") not in ("user", "key"):
        faults["of"] = "of must be one of user, key"
    if faults:
        raise Refused(list(faults.values()), list(faults))
    return settings


def object_name(of: Mapping[str, str]) -> str:
    """Return the name of a firing object, as "channel moonshot"."""
    return " ".join(f"{part} {name}" for part, name in of.items())


def listed(names: Sequence[str], name: str) -> bool:
    """Return whether a rule with these names applies to an object."""
    return not names or name in names

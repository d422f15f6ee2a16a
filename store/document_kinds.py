"""The kinds of the operator's document and their fields: one table that everything reads.

parse, plan, single edits, lists and export go by it. A field added here needs a column (a
migration) and a line in objects.py. Not here: what needs the store or other entries.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from store.audit import masked
from store.document_fields import (
    BASE_URL,
    CA_FILE,
    MODEL_NAME,
    MODEL_OR_ALL,
    NAME,
    NETWORK,
    PASSWORD,
    PROXY,
    SECRET,
    UPSTREAM_KEY,
    Boolean,
    Choice,
    FieldType,
    HeaderMap,
    Instant,
    Integer,
    ListOf,
    ModelMap,
    Number,
    Optional,
    PriceTable,
)
from store.pricing import format_money, format_multiplier, parse_money, parse_multiplier
from store.windows import NEVER, WINDOWS

FAMILIES = ("chat_completions", "responses", "messages", "generate_content")
ROLES = ("member", "admin")
SPEND_ORDERS = ("plan_first", "wallet_first", "plan_only", "wallet_only")
LIMIT_WINDOWS = (NEVER, *WINDOWS)
DEFAULT_GROUP = "default"
PPM_PER_ONE = 1_000_000
MAX_TOKENS = 10**9
MAX_LIMIT = 10**12
MAX_PRIORITY = 1_000_000
MAX_WEIGHT = 1_000_000
DEFAULT_DAYS = 30
MAX_DAYS = 36_500


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its type, what a new entry takes when it is missing, and whether it is secret.

    A default of None that the type does not take is replaced by plan.py when the entry is made.
    `once`: only read when the entry is made, and shown by no list or export.
    """

    type: FieldType
    default: Any = REQUIRED
    secret: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """One section of the document: the fields that are its identity, and the others."""

    identity: Mapping[str, FieldType]
    fields: Mapping[str, Field]


def _parse_quota(text: str) -> int:
    nanos = parse_money(text)
    if nanos == 0:
        raise ValueError("must be more than 0")
    return nanos


_MONEY = Number(parse_money, format_money)
_TOKENS = Optional(Integer(1, MAX_TOKENS))
_LIMIT = Field(Integer(0, MAX_LIMIT), 0)
_LIMITS = dict.fromkeys(("rpm", "tpm", "concurrency"), _LIMIT)
_KEY_LIMITS = dict.fromkeys(("key_rpm", "key_tpm", "key_concurrency"), _LIMIT)
_ENABLED = {"enabled": Field(Boolean(), True)}

# In the order in which entries are made: what is referred to comes first.
KINDS: Mapping[str, Kind] = {
    "model": Kind(
        {"name": MODEL_NAME},
        {
            "context_tokens": Field(_TOKENS, None),
            "max_output_tokens": Field(_TOKENS, None),
            "price": Field(PriceTable()),
            **_ENABLED,
        },
    ),
    "group": Kind(
        {"name": NAME},
        {
            "multiplier": Field(Number(parse_multiplier, format_multiplier), PPM_PER_ONE),
            "models": Field(ListOf(MODEL_OR_ALL), ["*"]),
            "entries": Field(ListOf(Choice(FAMILIES)), list(FAMILIES)),
            **_LIMITS,
            **_ENABLED,
        },
    ),
    "channel": Kind(
        {"name": NAME},
        {
            "vendor": Field(NAME),
            "family": Field(Choice(FAMILIES)),
            "base_url": Field(BASE_URL),
            "keys": Field(ListOf(UPSTREAM_KEY), [], secret=True),
            "groups": Field(ListOf(NAME), [DEFAULT_GROUP]),
            "models": Field(ModelMap(), {}),
            "priority": Field(Integer(-MAX_PRIORITY, MAX_PRIORITY), 0),
            "weight": Field(Integer(1, MAX_WEIGHT), 1),
            **_LIMITS,
            **_KEY_LIMITS,
            "extra_headers": Field(HeaderMap(), {}, secret=True),
            "proxy": Field(Optional(PROXY), None, secret=True),
            "ca_file": Field(Optional(CA_FILE), None),
            **_ENABLED,
            "draining": Field(Boolean(), False),
        },
    ),
    "user": Kind(
        {"name": NAME},
        {
            "role": Field(Choice(ROLES), "member"),
            "balance": Field(_MONEY, 0, once=True),
            "password": Field(Optional(PASSWORD), None, secret=True),
            "order": Field(Choice(SPEND_ORDERS), "plan_first"),
            **_LIMITS,
            **_ENABLED,
        },
    ),
    "plan": Kind(
        {"name": NAME},
        {
            "quota": Field(Number(_parse_quota, format_money)),
            "window": Field(Choice(WINDOWS)),
            "days": Field(Integer(1, MAX_DAYS), DEFAULT_DAYS),
            **_ENABLED,
        },
    ),
    "subscription": Kind(
        {"user": NAME, "plan": NAME},
        {
            "starts_at": Field(Instant(), None),
            "expires_at": Field(Instant(), None),
            **_ENABLED,
        },
    ),
    "key": Kind(
        {"user": NAME, "name": NAME},
        {
            "group": Field(NAME, DEFAULT_GROUP),
            "secret": Field(SECRET, None, secret=True),
            "expires_at": Field(Optional(Instant()), None),
            "models": Field(ListOf(MODEL_NAME), []),
            "networks": Field(ListOf(NETWORK), []),
            "limit": Field(Optional(_MONEY), None),
            "limit_window": Field(Choice(LIMIT_WINDOWS), NEVER),
            **_LIMITS,
            **_ENABLED,
        },
    ),
}


def plain(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Kept fields as document values, in the table's order, with every secret masked."""
    shown = masked(fields) or {}
    specs = KINDS[kind].fields
    return {
        name: shown[name] if spec.secret else spec.type.plain(shown[name])
        for name, spec in specs.items()
        if name in shown
    }

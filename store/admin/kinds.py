"""The kinds of the operator's document and their fields, in one table that all other code uses.

parse, plan, single edits, lists and export use it. A field added here needs a column (a migration)
and a line in objects.py. Checks that need the store or other entries are elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from store.db.audit import masked
from store.values import texts
from store.values.channel_fields import TIMEOUT_S, TIMES, BodyMap, TimesMap
from store.values.features import DEFAULT_FEATURES, feature_word
from store.values.fields import (
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
    OptionMap,
    Text,
)
from store.values.passwords import MIN_PASSWORD_CHARS
from store.values.price_fields import CostMap, PriceChanges, PriceTable, RateList
from store.values.pricing import format_money, format_multiplier, parse_money, parse_multiplier
from store.values.times import NEVER, WINDOWS

FAMILIES = ("chat_completions", "responses", "messages", "generate_content")
ENTRIES = (
    *FAMILIES,
    *("embeddings", "images", "audio", "rerank", "moderations", "completions"),
)
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


NAME = Text(texts.name, f"a name of 1 to {texts.MAX_NAME_CHARS} printable characters")
MODEL_NAME = Text(texts.model_name, "a name of 1 to 128 of A-Z a-z 0-9 . _ : / @ -")
FEATURE = Text(
    feature_word, 'a [feature](#features), `"*"` for all, or `"-NAME"`, which is taken away'
)
MODEL_OR_ALL = Text(texts.model_or_all, 'a name of a model, or `"*"` for all')
UPSTREAM_KEY = Text(texts.upstream_key, "a credential of visible ASCII characters")
MAIL = Text(texts.mail_address, "an address like bob@example.com")
PASSWORD = Text(
    texts.password,
    f"a string of at least {MIN_PASSWORD_CHARS} characters, not the user's name, not one repeated"
    " character, not in conf/common_passwords.txt",
)
SECRET = Text(texts.given_secret, "16 to 200 of A-Z a-z 0-9 . _ -")
SHARED_ID = Text(
    texts.shared_id, 'an id, or the beginning of ids with `*` behind it, like `"vs_*"`'
)
NETWORK = Text(texts.network, 'an address or a network like `"10.0.0.0/8"`')
UPSTREAM_URL = Text(texts.upstream_url, 'a URL like `"https://api.example.com"`')
HEADER_NAME = Text(texts.header_name, "the name of a header")
PROXY = Text(texts.proxy, 'a URL like `"http://proxy.example:3128"`')
CA_FILE = Text(texts.ca_file, "the absolute path of a file with certificates in PEM")

REQUIRED: Any = object()
"""The default of a field that a new entry must give."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its type, its meaning, its default in a new entry, and whether it is secret.

    If the default is None and the type does not accept None, plan.py replaces it when the entry is
    created. `missing` describes the replacement, or the meaning of None. `once`: only read when the
    entry is created, and not in lists or exports. `local`: the path of a file of this machine,
    which only commands set.
    """

    type: FieldType
    meaning: str
    default: Any = REQUIRED
    missing: str = "not set"
    secret: bool = False
    once: bool = False
    local: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A section of the document: its description, the fields of its identity, the other fields."""

    about: str
    identity: Mapping[str, FieldType]
    fields: Mapping[str, Field]


def _parse_quota(text: str) -> int:
    nanos = parse_money(text)
    if nanos == 0:
        raise ValueError("must be more than 0")
    return nanos


_MONEY = Number(parse_money, format_money)
_MULTIPLIER = Number(parse_multiplier, format_multiplier)
_TOKENS = Optional(Integer(1, MAX_TOKENS))
_NUMBER = Integer(0, MAX_LIMIT)
_LIMITS = {
    "rpm": Field(_NUMBER, "Requests a minute; 0: no limit.", 0),
    "tpm": Field(_NUMBER, "Tokens a minute; 0: no limit.", 0),
    "concurrency": Field(_NUMBER, "Concurrent calls; 0: no limit.", 0),
}
_LIMIT_WINDOW = Field(Choice(LIMIT_WINDOWS), "When its count restarts.", NEVER)
_KEY_LIMITS = {
    "key_rpm": Field(_NUMBER, "`rpm` of each of its upstream keys.", 0),
    "key_tpm": Field(_NUMBER, "`tpm` of each of its upstream keys.", 0),
    "key_concurrency": Field(_NUMBER, "`concurrency` of each of its upstream keys.", 0),
}
_ENABLED = {"enabled": Field(Boolean(), "false: it exists but is not used.", True)}

# In the order in which entries are created, so that references come after their targets.
KINDS: Mapping[str, Kind] = {
    "model": Kind(
        "A model, by the name that clients use, and its prices.",
        {"name": MODEL_NAME},
        {
            "context_tokens": Field(
                _TOKENS, "Its context window; limits the input that is charged.", None
            ),
            "max_output_tokens": Field(
                _TOKENS, "Its longest output; held for a call without a limit of its own.", None
            ),
            "price": Field(
                PriceTable(),
                "The plain rate, complete: a missing meter follows its chain. `input` and `output`"
                ' are needed; `"0"` is free. Per million tokens, call, use, … as money.md lists.',
            ),
            "rate": Field(
                RateList(),
                "Prices of calls that were served under all conditions of `when`: `tier`, `speed`,"
                " `geo`, `input_over` (tokens of input). Either a `factor` of the plain rate's"
                " tokens, or complete prices (money.md). Given rates replace all rates.",
                [],
            ),
            "price_source": Field(
                Optional(NAME),
                "The list that `price` and `rate` are from, and the day on which it was read, like"
                ' `"litellm 2026-11-28"`; forgotten when they change without it.',
                None,
            ),
            "price_changes": Field(
                PriceChanges(),
                "Scheduled prices: each complete, and in force from the time `from` by the store's"
                " clock, when it replaces `price`. Given ones replace all that are scheduled;"
                " `model set NAME price.input=3 from=TIME` adds one.",
                [],
            ),
            **_ENABLED,
        },
    ),
    "group": Kind(
        "Rights of its keys: models, entry points, and the multiplier of the price.",
        {"name": NAME},
        {
            "multiplier": Field(_MULTIPLIER, "Of the price; at most 6 decimals.", PPM_PER_ONE),
            "models": Field(ListOf(MODEL_OR_ALL), "Models that its keys may use.", ["*"]),
            "entries": Field(
                ListOf(Choice(ENTRIES)),
                "Families, and endpoints beside chat, that its keys may use.",
                list(ENTRIES),
            ),
            **_LIMITS,
            "translate": Field(
                Boolean(), "false: only channels that speak the family of the call.", True
            ),
            "features": Field(
                ListOf(FEATURE),
                "Features its keys may use beyond text and functions: service tiers, hosted tools"
                " and the like.",
                list(DEFAULT_FEATURES),
            ),
            **_ENABLED,
        },
    ),
    "channel": Kind(
        "An upstream: an account at a vendor, or a server of your own (vendors.md).",
        {"name": NAME},
        {
            "vendor": Field(NAME, "A row of vendors.md."),
            "family": Field(Choice(FAMILIES), "Wire format of the upstream."),
            "base_url": Field(
                UPSTREAM_URL,
                "Address of the upstream, without a version path; some vendors' may have one"
                " (vendors.md).",
            ),
            "keys": Field(
                ListOf(UPSTREAM_KEY),
                "The vendor's keys, which share the calls, each with its own circuit breaker."
                " Without one no credential is sent.",
                [],
                secret=True,
            ),
            "groups": Field(ListOf(NAME), "Groups whose keys may use it.", [DEFAULT_GROUP]),
            "models": Field(
                ModelMap(), "Models that it serves, and the upstream's names for them.", {}
            ),
            "priority": Field(
                Integer(-MAX_PRIORITY, MAX_PRIORITY), "Higher ones are tried first.", 0
            ),
            "weight": Field(Integer(1, MAX_WEIGHT), "Its share among channels of one priority.", 1),
            **_LIMITS,
            **_KEY_LIMITS,
            "extra_headers": Field(
                HeaderMap(), "Additional headers of its requests.", {}, secret=True
            ),
            "remove_headers": Field(
                ListOf(HEADER_NAME),
                "Headers removed from its requests, from the client or the gateway.",
                [],
            ),
            "body": Field(
                BodyMap(),
                "Edits of its requests, before the hold and the check of features: `remove`, then"
                " `default`, then `set` (channels.md). Not for `model`, `stream`, `stream_options`,"
                " `n`, `usage`.",
                {},
            ),
            **{
                name: Field(
                    Optional(TIMEOUT_S),
                    f"Overrides the setting `upstream.{name}`.",
                    None,
                    "the setting",
                )
                for name in TIMES
            },
            "model_times": Field(
                TimesMap(),
                "Time-outs of single models, by the names that clients use, in place of those of"
                " the channel.",
                {},
            ),
            "retry_timeouts": Field(
                Optional(Boolean()),
                "Overrides the setting `routing.retry_timeouts`.",
                None,
                "the setting",
            ),
            "proxy": Field(
                Optional(PROXY), "Proxy for its requests.", None, "directly", secret=True
            ),
            "ca_file": Field(
                Optional(CA_FILE),
                "The only certificates it trusts; at most 1 MiB, set by commands only.",
                None,
                "the system's",
                local=True,
            ),
            "translate": Field(Boolean(), "false: only calls of its own family.", True),
            "options": Field(
                OptionMap(),
                "Corrections to the gateway's table of what its models accept (channels.md).",
                {},
            ),
            "shared_ids": Field(
                ListOf(SHARED_ID),
                "Objects of its account that all users of its groups may use: prompts, files,"
                " vector stores and the like (channels.md).",
                [],
            ),
            "cost_factor": Field(
                Optional(_MULTIPLIER),
                "The operator's cost as a part of the list price, before any multiplier: `0.8`.",
                None,
            ),
            "cost": Field(
                CostMap(),
                "The operator's cost of single models, by the names that clients use, as prices;"
                " uses without one cost what the model's plain price says.",
                {},
            ),
            **_ENABLED,
            "draining": Field(Boolean(), "true: no new calls; running ones finish.", False),
        },
    ),
    "user": Kind(
        "A person or program with a wallet.",
        {"name": NAME},
        {
            "role": Field(Choice(ROLES), "Permissions in the Hub.", "member"),
            "balance": Field(_MONEY, "Credited once, when the user is created.", 0, once=True),
            "password": Field(
                Optional(PASSWORD), "To sign in to the Hub.", None, "no sign-in", secret=True
            ),
            "mail": Field(Optional(MAIL), "Address of its alerts.", None, "no mail"),
            "groups": Field(
                ListOf(NAME),
                "Groups in which a member may create or move keys in the Hub; admins: all.",
                [DEFAULT_GROUP],
            ),
            "order": Field(
                Choice(SPEND_ORDERS), "Who pays first, plan or wallet (money.md).", "plan_first"
            ),
            "limit": Field(
                Optional(_MONEY),
                "Most that its keys may spend together in a window.",
                None,
                "no limit",
            ),
            "limit_window": _LIMIT_WINDOW,
            **_LIMITS,
            **_ENABLED,
        },
    ),
    "plan": Kind(
        "A quota of money for each day, week or month.",
        {"name": NAME},
        {
            "quota": Field(Number(_parse_quota, format_money), "Money for each window, above 0."),
            "window": Field(Choice(WINDOWS), "Starts at midnight UTC, a week on Monday."),
            "days": Field(Integer(1, MAX_DAYS), "How long a subscription lasts.", DEFAULT_DAYS),
            **_ENABLED,
        },
    ),
    "subscription": Kind(
        "A plan of a user.",
        {"user": NAME, "plan": NAME},
        {
            "starts_at": Field(Instant(), "When it begins.", None, "now"),
            "expires_at": Field(Instant(), "When it ends.", None, "`days` of the plan later"),
            **_ENABLED,
        },
    ),
    "key": Kind(
        "An API key of a user.",
        {"user": NAME, "name": NAME},
        {
            "group": Field(NAME, "Group that says what it may do.", DEFAULT_GROUP),
            "secret": Field(
                SECRET,
                "What the client sends; set it to bring a key from elsewhere.",
                None,
                "made, and printed once",
                secret=True,
            ),
            "expires_at": Field(Optional(Instant()), "When it stops working.", None, "never"),
            "models": Field(ListOf(MODEL_NAME), "Only these models of its group; empty: all.", []),
            "networks": Field(ListOf(NETWORK), "Only from these addresses; empty: from all.", []),
            "limit": Field(Optional(_MONEY), "What it may spend in a window.", None, "no limit"),
            "limit_window": _LIMIT_WINDOW,
            **_LIMITS,
            **_ENABLED,
        },
    ),
}


def plain(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored fields as document values, in the table's order, with every secret masked."""
    values = masked(fields) or {}
    specs = KINDS[kind].fields
    return {
        name: values[name] if spec.secret else spec.type.plain(values[name])
        for name, spec in specs.items()
        if name in values
    }

"""The steps that create and change the schema; `migrate.py` runs them.

The first step creates the tables as the models describe them, so a new store has the newest schema
at once and notes the later steps as done. A change of a table is a change of its model and a
`Migration` at the end of ALL for existing stores. It must be written so that processes of the
previous version continue to work (a new column has a DEFAULT in the table), and so that every MySQL
statement can be run twice. It is never edited after a release.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import peewee

from store.db import schema
from store.db.database import database_ms, is_mysql
from store.db.schema import Additions
from store.values.ids import DAY_MS, day_at
from store.values.usage import MORE_TOKENS

FORERUNNERS = (
    *("0001_core", "0002_usage_rollups", "0003_codes", "0004_accounts", "0005_usage_caller"),
    *("0006_stored_responses", "0007_limits", "0008_channels", "0009_channel_status"),
    *("0010_codes_disabled", "0011_translation", "0012_hub", "0013_hub_keys"),
    *("0014_usage_rollups", "0015_access", "0016_overview", "0017_notices", "0018_upkeep"),
    *("0019_trace_id", "0020_usage_by_user", "0021_shared_ids", "0022_guarded_proxy"),
    "0023_processes",
)
"""Steps of earlier versions: a store that has all of them has the schema of FIRST."""

BRIDGE_VERSION = "Sluice 0.1.0 at schema 23 (git-4ce62c7e6920)"
"""The version to which an older installation must be upgraded before this one."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A step: its name, and its statements for a database, each safe to run twice on MySQL. `added`
    is what it adds to the previous schema, which has none of these columns, indexes and tables."""

    name: str
    statements: Callable[[peewee.Database], Sequence[str]]
    added: Additions = field(default_factory=dict)


_ROLLUP_COSTS = ("upstream_nanos", "upstream_known_nanos")

RATES_SINCE = "rates_since"
"""The row of `versions` in a store older than usage_by_rate: the UTC day since which that table has
all calls. The day of the upgrade is incomplete, and other nodes may be upgraded later."""

CALLERS_SINCE = "callers_since"
"""The row of `versions` in a store older than usage_by_caller: the UTC day since which that table
has all calls. From that day on, the upkeep makes the days before it from usage_by_user."""

CALLERS_AFTER_DAYS = 2  # by then all nodes are upgraded

FIRST = Migration("0001_schema", schema.create_all)
_PRICES: Additions = {
    "prices": ("other_meters", "rates", "source"),
    "groups": ("features",),
    "channels": ("cost_factor_ppm", "cost"),
    "users": ("limit_nanos", "limit_window"),
    "usage_records": ("receipt", "upstream_nanos", *MORE_TOKENS),
    "usage_by_key": _ROLLUP_COSTS,
    "usage_by_channel": _ROLLUP_COSTS,
    "usage_by_day": _ROLLUP_COSTS,
    "usage_by_user": _ROLLUP_COSTS,
    "usage_by_group": _ROLLUP_COSTS,
    "usage_by_rate": (),
}


def _add_prices(db: peewee.Database) -> list[str]:
    tomorrow = day_at(database_ms(db) + DAY_MS)
    insert = "INSERT IGNORE" if is_mysql(db) else "INSERT OR IGNORE"
    mark = f"""{insert} INTO "versions" ("name", "version") VALUES ('{RATES_SINCE}', {tomorrow})"""
    return [*schema.add(db, _PRICES), mark]


PRICES = Migration("0002_prices", _add_prices, _PRICES)
_FAMILIES = ("chat_completions", "responses", "messages", "generate_content")
_ENDPOINTS = ("embeddings", "images", "audio", "rerank", "moderations", "completions")


def _add_endpoints(db: peewee.Database) -> list[str]:
    """Grant the entries beside chat to groups that have all families, as new groups have them."""
    entries = json.dumps([*_FAMILIES, *_ENDPOINTS], separators=(",", ":"))
    has_all = " AND ".join(f"""INSTR("entries", '"{name}"') > 0""" for name in _FAMILIES)
    return [f"""UPDATE "groups" SET "entries" = '{entries}' WHERE {has_all}"""]


REACH = Migration("0003_reach", _add_endpoints)
_CHANNEL_FIELDS: Additions = {
    "channels": (
        *("body", "remove_headers", "first_byte_timeout_s", "idle_timeout_s", "model_times"),
        "retry_timeouts",
    ),
}
CHANNEL_FIELDS = Migration(
    "0004_channel_fields", lambda db: schema.add(db, _CHANNEL_FIELDS), _CHANNEL_FIELDS
)
_AUDIT_INDEX: Additions = {"audit_log": ("audit_log_object",)}
AUDIT_INDEX = Migration("0005_audit_index", lambda db: schema.add(db, _AUDIT_INDEX), _AUDIT_INDEX)
_ALERTS: Additions = {
    "users": ("mail",),
    "alert_rules": (),
    "alert_states": (),
    "alert_destinations": (),
    "alert_outbox": (),
    "alert_samples": (),
}


def _add_alerts(db: peewee.Database) -> list[str]:
    insert = "INSERT IGNORE" if is_mysql(db) else "INSERT OR IGNORE"
    return [*schema.add(db, _ALERTS), f"{insert} {schema.ALERTS_ROW}"]


ALERTS = Migration("0006_alerts", _add_alerts, _ALERTS)
_LOCKS: Additions = {"wallets": ("locks",), "quotas": ("locks",), "versions": ("locks",)}
LOCKS = Migration("0007_locks", lambda db: schema.add(db, _LOCKS), _LOCKS)
_DRAFTS: Additions = {"channel_drafts": ()}
DRAFTS = Migration("0008_channel_drafts", lambda db: schema.add(db, _DRAFTS), _DRAFTS)
_INVITES: Additions = {"hub_invites": ()}
INVITES = Migration("0009_invites", lambda db: schema.add(db, _INVITES), _INVITES)
_CLUSTER: Additions = {"writing_host": (), "marks": ()}


def _add_cluster(db: peewee.Database) -> list[str]:
    insert = "INSERT IGNORE" if is_mysql(db) else "INSERT OR IGNORE"
    return [*schema.add(db, _CLUSTER), f"{insert} {schema.WRITING_HOST_ROW}"]


CLUSTER = Migration("0010_cluster", _add_cluster, _CLUSTER)
_CALLERS: Additions = {"usage_by_caller": ()}


def _add_callers(db: peewee.Database) -> list[str]:
    since = day_at(database_ms(db) + CALLERS_AFTER_DAYS * DAY_MS)
    insert = "INSERT IGNORE" if is_mysql(db) else "INSERT OR IGNORE"
    mark = f"""{insert} INTO "versions" ("name", "version") VALUES ('{CALLERS_SINCE}', {since})"""
    return [*schema.add(db, _CALLERS), mark]


CALLERS = Migration("0011_callers", _add_callers, _CALLERS)
ALL = (
    *(FIRST, PRICES, REACH, CHANNEL_FIELDS, AUDIT_INDEX, ALERTS, LOCKS, DRAFTS, INVITES),
    *(CLUSTER, CALLERS),
)

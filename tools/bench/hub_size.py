"""Times all pages of the Hub on the store of usage_records.py: as its busiest member, and as an
administrator.

    python -m tools.bench.hub_size --store mysql://root@127.0.0.1:3307/bench
    python -m tools.bench.hub_size --store mysql://root@127.0.0.1:3307/bench --only errors

Creates what that store lacks: its users, keys, models, channels and groups, and an audit log of
AUDITED changes. Says which pages are slower than SLOW_MS at the 95th percentile, or larger than
LARGE_BYTES.
"""

import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import click
import peewee

from store.calls.usage_queries import Filters, history
from store.db.database import first_row, insert_rows, transaction
from store.db.tables.catalog import Channel, Group, Model, Price
from store.db.tables.system import AuditRow
from store.db.tables.users import ApiKey, User
from store.values.ids import DAY_MS, HOUR_MS, first_ulid, new_ulid, now_ms, ulid
from store.values.usage_record import rfc3339
from tools.bench.harness import (
    page_figures,
    serve,
    session_of,
    site_of,
    store,
    store_option,
)
from tools.bench.usage_records import BATCH_ROWS, CHANNELS, MODELS, PRICES, USERS

SLOW_MS, LARGE_BYTES = 300, 150_000
MEMBER, ADMIN = "user-0", "bench-admin"
AUDITED = 100_000
GROUP_ID = f"01GROUP{0:019}"

Rows = list[dict[str, Any]]

FILTERS = (
    *("model=model-0", "model=model-15", "outcome=timeout", "outcome=ok&model=model-7"),
    *("error_code=gateway_lost", "error_code=unavailable", "endpoint=%2Fv1%2Fchat%2Fcompletions"),
    *("group=default", "status=504", "status=418", "stream=false", "min_duration_ms=90000"),
    *("text=overloaded", "text=never+said", "client_request_id=never-given"),
)
"""Filters of everybody; some take nearly all calls, some none."""
SUMS = (
    *("day", "hour", "model", "day,model", "key_id", "outcome", "endpoint", "group"),
    *("error_code", "user"),
)
MEMBER_PAGES = (
    *(
        "/",
        "/models",
        "/models/model-1",
        "/wallet",
        "/wallet/statement",
        "/keys",
        "/keys/{key}",
        "/keys/new",
        "/setup",
        "/account",
    ),
    *("/usage", "/usage?since=7d", "/usage?since=30d", "/usage?since=30d&chart=first_byte"),
    *("/usage?since=30d&after={deep}", "/usage?since=30d&sort=cost", "/usage?since={h}&sort=cost"),
    *("/usage?since=30d&by=model", "/usage?since=30d&by=day", "/usage?since=30d&by=error_code"),
    *("/usage?since=30d&key={key}", "/usage?request_id={call}", "/usage/{call}"),
    *(f"/usage?since=30d&{query}" for query in FILTERS),
    *("/api/me", "/api/keys", "/api/keys/{key}", "/api/status", "/api/wallet"),
    *("/api/wallet/ledger", "/api/usage", "/api/usage?after={deep}", "/api/usage/{call}"),
    *("/api/usage?since=30d&key={key}", "/api/usage?since=30d&status=418"),
    *("/api/usage/errors", "/api/usage/errors?since=30d"),
    *("/api/usage/export?format=csv&since=30d", "/api/usage/export?format=ndjson"),
    *(f"/api/usage/stats?since=30d&by={names}" for names in SUMS),
    "/api/usage/stats?since={h}&by=status",
)
ADMIN_PAGES = (
    *("/", "/status", "/admin/users", "/admin/users?search=user-9", "/admin/users/user-0"),
    *("/admin/users?sort=spent", "/admin/users?sort=balance", "/admin/users/user-0?by=model"),
    *("/admin/users/user-0?by=key", "/admin/users/user-0/statement", "/admin/invites"),
    *("/admin/keys", "/admin/keys?user=user-0", "/api/admin/users/user-0/keys"),
    *("/admin/groups", "/admin/models", "/admin/channels", "/admin/channels/channel-0"),
    *(
        "/admin/plans",
        "/admin/codes",
        "/admin/system",
        "/admin/audit",
        "/admin/audit?after={audit}",
    ),
    *("/admin/audit?actor=boss", "/admin/audit?kind=channel", "/admin/audit?name=user-999"),
    *(
        "/admin/audit?actor=nobody",
        "/admin/usage",
        "/admin/usage?since=7d",
        "/admin/usage?since=30d",
    ),
    *("/usage?of=all&since=30d&by=model", "/usage?of=all&since=30d&by=user"),
    *("/usage?of=all&since=30d&by=key_id", "/usage?of=all&since=30d&by=channel&chart=margin"),
    *("/admin/usage?since=30d&after={deep}", "/admin/usage?since=30d&user=user-0"),
    *("/admin/usage?since=30d&user=user-999", "/admin/usage?since=30d&channel=channel-3"),
    *("/admin/usage?since=30d&user=user-0&channel=channel-3", "/admin/usage?since=30d&key={key}"),
    *("/admin/usage?since=30d&sort=cost", "/admin/usage?upstream_request_id=never-given"),
    *(f"/admin/usage?since=30d&{query}" for query in FILTERS),
    *("/api/usage", "/api/usage?after={deep}", "/api/status", "/api/usage/errors"),
    *("/api/usage/errors?since=7d", "/api/usage/errors?since=30d", "/api/admin/system"),
    *("/api/admin/users", "/api/admin/audit", "/api/usage/export?format=csv&since=30d"),
    *("/api/usage/export?format=ndjson", "/api/usage/stats?since=30d&by=channel"),
    *("/api/usage/stats?since=30d&by=user&sort=cost&top=20", "/api/usage/stats?since=7d&by=user"),
    *(f"/api/usage/stats?since=30d&by={names}" for names in SUMS),
    "/api/usage/stats?since={h}&by=status",
)


def people(db: peewee.Database) -> Iterator[tuple[Any, Rows]]:
    """Yield the objects that the records name, and an audit log, a batch at a time."""
    group = {"multiplier_ppm": 1_000_000, "models": ["*"], "entries": []}
    yield Group, [{"id": GROUP_ID, "name": "default", **group}]
    models = {f"model-{number}": f"01MODEL{number:019}" for number in range(MODELS)}
    yield (
        Model,
        [{"id": id_, "name": name, "created_ms": 0} for name, id_ in models.items()],
    )
    price = {"effective_ms": 0, "input": PRICES.prices["input"], "output": PRICES.prices["output"]}
    yield Price, [{"model_id": model_id, **price} for model_id in models.values()]
    channel: dict[str, Any] = {
        "vendor": "demo",
        "family": "chat_completions",
        "base_url": "https://vendor.example",
    }
    channel |= {"models": {name: f"{name}-2026-01-01" for name in models}, "groups": ["default"]}
    names = [f"channel-{number}" for number in range(CHANNELS)]
    yield Channel, [{"id": new_ulid(), "name": name, **channel} for name in names]
    user = {"role": "member", "spend_order": "plan_first", "created_ms": 0}
    yield (
        User,
        [{"id": f"01USER{n:020}", "name": f"user-{n}", **user} for n in range(USERS)],
    )
    key: dict[str, Any] = {
        "group_id": GROUP_ID,
        "prefix": "sl-benc",
        "last_four": "0000",
        "models": ["*"],
    }
    key |= {"networks": [], "limit_window": "month", "created_ms": 0}
    keys = [(number, f"01USER{number // 2:020}") for number in range(2 * USERS)]
    for owned in (keys[at : at + BATCH_ROWS] for at in range(0, len(keys), BATCH_ROWS)):
        yield (
            ApiKey,
            [
                {"id": f"01KEY{number:021}", "user_id": owner, "name": f"key-{number}", **key}
                for number, owner in owned
            ],
        )
    for at in range(0, AUDITED, BATCH_ROWS):
        yield AuditRow, [_change(number) for number in range(at, at + BATCH_ROWS)]


def _change(number: int) -> dict[str, Any]:
    chance, at_ms = random.Random(number), now_ms() - (AUDITED - number) * 60_000
    kind = ("user", "key", "channel", "model")[number % 4]
    fields = {"rpm": chance.randrange(100), "keys": ["***"], "groups": ["default"]}
    return {
        **{"id": ulid(at_ms, chance.randbytes(10)), "at_ms": at_ms, "action": "update"},
        **{"actor": ("boss", "ops", "cli")[number % 3], "kind": kind},
        **{"name": f"{kind}-{number % 1_000}", "before": fields, "after": {**fields, "rpm": 7}},
    }


def _make_up(db: peewee.Database) -> None:
    if first_row(db, User.select(User.id).where(User.name == MEMBER)) is None:
        for table, rows in people(db):
            transaction(db, lambda table=table, rows=rows: insert_rows(db, table, rows))  # type: ignore[misc]


def _places(db: peewee.Database) -> dict[str, str]:
    """Return the values of names in braces."""
    [last] = history(db, Filters(user=MEMBER), 1)
    deep_ms = last["started_ms"] - 20 * DAY_MS
    changes = AuditRow.select(AuditRow.id).order_by(AuditRow.id.desc()).offset(AUDITED // 2)
    audit = first_row(db, changes.limit(1))
    hours = rfc3339(last["started_ms"] - 2 * HOUR_MS)
    return {
        **{"call": last["id"], "key": f"01KEY{0:021}", "deep": first_ulid(deep_ms)},
        **{"audit": str(audit[0]) if audit else "", "h": quote(hours)},
    }


@click.command()
@store_option
@click.option("--only", default="", help="Of pages with this text in their address.")
@click.option("--who", type=click.Choice(["both", MEMBER, ADMIN]), default="both")
def main(url: str, only: str, who: str) -> None:
    """Print how long each page takes."""
    with store(url, schema=True) as db:
        _make_up(db)
        port, places = serve(site_of(db)), _places(db)
        for name, pages in ((MEMBER, MEMBER_PAGES), (ADMIN, ADMIN_PAGES)):
            cookie = session_of(db, name)
            for page in pages if who in ("both", name) else ():
                if only in page:
                    figures = page_figures(port, page.format(**places), cookie)
                    slow, large = figures.p95_ms > SLOW_MS, figures.size > LARGE_BYTES
                    mark = (" SLOW" if slow else "") + (" LARGE" if large else "")
                    click.echo(f"{name:12} {page:62} {figures}{mark}")


if __name__ == "__main__":
    main()

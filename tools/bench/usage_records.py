"""Makes usage records of many calls in an empty store, for the figures of usage at size.

    python -m tools.bench.usage_records --store mysql://root@127.0.0.1:3306/bench --rows 10000000

The same seed makes the same records. Costs, wallets and the ledger's day lines are consistent, so
that `usage verify` and `books verify` find no fault; the users themselves do not exist.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterator

import click
import peewee

from store.calls import rollups
from store.db.database import (
    executemany,
    insert_columns,
    is_mysql,
    transaction,
)
from store.db.partitions import AHEAD_DAYS, make_days
from store.money.ledger import CHARGES, charges_id
from store.values.ids import day_at, day_begin_ms, ulid
from store.values.pricing import cost_nanos, plain_rate
from store.values.usage import Usage
from store.values.usage_record import (
    AttemptRecord,
    CallFacts,
    Charge,
    UsageRecord,
    columns_of,
    record_day,
)
from tools.bench.harness import store, store_option

USERS = 1_000
MODELS = 20
CHANNELS = 8
OUTCOMES = (
    *(("ok", 900), ("refused", 40), ("upstream_error", 25), ("client_gone", 20)),
    *(("timeout", 8), ("upstream_truncated", 5), ("gateway_lost", 2)),
)
STATUS = {"ok": 200, "refused": 429, "upstream_error": 502, "timeout": 504}
ERRORS = {
    "refused": ("rate_limit_exceeded", "too many requests of this key"),
    "upstream_error": ("upstream_error", "the upstream answered 502: overloaded"),
    "timeout": ("upstream_timeout", "no answer within 600 s"),
}
PRICES = plain_rate({"input": 2 * 10**9, "output": 8 * 10**9, "cache_read": 5 * 10**8})
DAY_MS = 86_400_000
BATCH_ROWS = 2_000

_ADD_LINE = (
    'INSERT INTO "ledger" ("id", "user_id", "kind", "amount", "balance_after", "idempotency_id",'
    ' "reason", "at_ms", "day") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)'
)
_ADD_WALLET = 'INSERT INTO "wallets" ("user_id", "balance") VALUES (?, ?)'

Spent = dict[tuple[int, str], int]


def records(rows: int, days: int, end_ms: int, seed: int) -> Iterator[UsageRecord]:
    """Calls spread evenly over the days before `end_ms`, in order of their start.

    User n makes one n-th of the first one's calls, with two keys and three preferred models.
    """
    chance = random.Random(seed)
    users = chance.choices(range(USERS), [1 / (n + 1) for n in range(USERS)], k=100_000)
    outcomes = chance.choices(*zip(*OUTCOMES, strict=True), k=100_003)
    start_ms = end_ms - days * DAY_MS
    for number in range(rows):
        user = users[number % 100_000]
        at_ms = start_ms + number * days * DAY_MS // rows
        model = (user + (0, 0, 0, 1, 1, 7)[chance.randrange(6)]) % MODELS
        yield _record(
            ulid(at_ms, chance.randbytes(10)), at_ms, (user, model), outcomes[number % 100_003]
        )


def _record(call_id: str, at_ms: int, who: tuple[int, int], outcome: str) -> UsageRecord:
    user, model = who
    key = user * 2 + (at_ms & 1)
    relayed = outcome != "refused"
    channel = f"channel-{(model + (at_ms >> 3 & 1)) % CHANNELS}" if relayed else None
    no_error = (None, None) if outcome == "ok" else (outcome, "the connection ended")
    error_code, error_message = ERRORS.get(outcome, no_error)
    record = UsageRecord(
        id=call_id,
        call=CallFacts(
            started_ms=at_ms,
            user_id=f"01USER{user:020}",
            user=f"user-{user}",
            key_id=f"01KEY{key:021}",
            key_name=f"key-{key}",
            group="default",
            endpoint="/v1/chat/completions",
            family="chat_completions",
            model=f"model-{model}",
            stream=True,
            prices=PRICES.text,
            multiplier_ppm=1_000_000,
            client_ip="203.0.113.7",
            user_agent="OpenAI/Python 2.8.1",
        ),
        upstream_family="chat_completions" if relayed else None,
        upstream_model=f"model-{model}-2026-01-01" if relayed else None,
        channel=channel,
        status=STATUS.get(outcome, 200),
        outcome=outcome,
        error_code=error_code,
        error_message=error_message,
        attempts=(AttemptRecord(channel, 200, None, 700),) if channel else (),
        node="node-1",
    )
    if outcome in ("ok", "client_gone"):
        record.usage = Usage(200 + at_ms % 3000, 20 + at_ms % 700)
        record.usage_source, record.ttft_ms, record.duration_ms = "reported", 400, 5_000
        record.cost_nanos = cost_nanos(record.usage, PRICES, 1_000_000)
        record.charges = (Charge("wallet", record.cost_nanos),)
    return record


def fill(db: peewee.Database, calls: Iterator[UsageRecord]) -> tuple[int, Spent]:
    """Insert records; returns how many, and the nanos spent by day and user."""
    count = 0
    spent: Spent = defaultdict(int)
    batch: list[UsageRecord] = []
    for record in calls:
        batch.append(record)
        if record.charges:
            spent[record_day(record.id), record.call.user_id] += record.cost_nanos
        if len(batch) == BATCH_ROWS:
            count += _insert(db, batch)
            batch = []
    return count + _insert(db, batch), spent


def _insert(db: peewee.Database, batch: list[UsageRecord]) -> int:
    if batch:
        columns = columns_of(batch, 0)
        columns["recorded_ms"] = [record.call.started_ms + 5_000 for record in batch]
        transaction(db, lambda: insert_columns(db, "usage_records", columns))
    return len(batch)


def write_books(db: peewee.Database, spent: Spent) -> None:
    """Insert the ledger's day lines of what was spent, and the wallets, which began at 0."""
    balances: dict[str, int] = defaultdict(int)
    lines = []
    for number, ((day, user_id), nanos) in enumerate(sorted(spent.items())):
        balances[user_id] -= nanos
        at_ms = day_begin_ms(day) + DAY_MS
        line_id = ulid(at_ms, number.to_bytes(10))
        tail = (charges_id(user_id, day), "usage", at_ms, day)
        lines.append((line_id, user_id, CHARGES, -nanos, balances[user_id], *tail))

    def write() -> None:
        executemany(db, _ADD_WALLET, list(balances.items()))
        for start in range(0, len(lines), BATCH_ROWS):
            executemany(db, _ADD_LINE, lines[start : start + BATCH_ROWS])

    transaction(db, write)


@click.command()
@store_option
@click.option("--rows", type=click.IntRange(1), required=True)
@click.option("--days", type=click.IntRange(1), default=30, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(url: str, rows: int, days: int, seed: int) -> None:
    """Make the schema, records of the last DAYS days, and their roll-ups."""
    end_ms = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS
    with store(url, schema=True) as db:
        if is_mysql(db):
            make_days(db, day_at(end_ms - days * DAY_MS), days + AHEAD_DAYS)
        begun = time.monotonic()
        count, spent = fill(db, records(rows, days, end_ms, seed))
        write_books(db, spent)
        filled = time.monotonic()
        click.echo(f"{count} records in {filled - begun:.1f} s")
        rebuilt = sum(1 for _ in rollups.rebuild(db))
        click.echo(f"roll-ups of {rebuilt} days in {time.monotonic() - filled:.1f} s")


if __name__ == "__main__":
    main()

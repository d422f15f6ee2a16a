"""Makes usage records of many calls in an empty store, for the figures of usage at size.

    python -m tools.bench.usage_records --store mysql://root@127.0.0.1:3306/bench --rows 10000000

Makes the records of today and of DRAWN_DAYS whole days before it one by one, and their roll-ups as
`usage rebuild` makes them. The earlier days are copies that the database makes of these, with each
call and its id moved back by days, so that ten million take minutes. Costs, roll-ups, wallets and
the ledger's lines agree: `usage verify` and `books verify` find no fault. The users themselves do
not exist.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import click
import peewee

from store.calls import rollups
from store.channels import status_sums
from store.db.database import (
    execute,
    executemany,
    insert_columns,
    is_mysql,
    quoted,
    transaction,
)
from store.db.partitions import AHEAD_DAYS, make_days
from store.db.tables.usage import UsageByRate, UsageRow
from store.money.ledger import CHARGES, charges_id
from store.money.wallet import CREDIT
from store.values.ids import ALPHABET, DAY_MS, day_at, day_begin_ms, now_ms, ulid
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

USERS = 1_500
MODELS = 20
CHANNELS = 8
OUTCOMES = (
    *(("ok", 900), ("refused", 40), ("upstream_error", 25), ("client_gone", 20)),
    *(("timeout", 8), ("upstream_truncated", 5), ("gateway_lost", 2)),
)
STATUS = {"ok": 200, "refused": 429, "upstream_error": 502, "timeout": 504}
ERRORS = {
    "refused": ("rate_limit_exceeded", "too many requests of this key"),
    "unpaid": ("insufficient_quota", "the wallet is used up"),
    "upstream_error": ("upstream_error", "the upstream answered 502: overloaded"),
    "timeout": ("upstream_timeout", "no answer within 600 s"),
}
PRICES = plain_rate({"input": 2 * 10**9, "output": 8 * 10**9, "cache_read": 5 * 10**8})
UNPAID_IN = 64  # of the refused calls, those in one of this many milliseconds
UPSTREAM_PERCENT = 70
NO_MARGIN = "channel-7"  # its costs are unknown
BATCH_ROWS = 2_000
DRAWN_DAYS = 2
CREDIT_PERCENT = 120  # of a user's spending

_ADD_LINE = (
    'INSERT INTO "ledger" ("id", "user_id", "kind", "amount", "balance_after", "idempotency_id",'
    ' "reason", "at_ms", "day") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)'
)
_ADD_WALLET = 'INSERT INTO "wallets" ("user_id", "balance") VALUES (?, ?)'

_FILLING = ("SET SESSION unique_checks = 0", "SET SESSION foreign_key_checks = 0")

Spent = dict[tuple[int, str], int]


def records(a_day: int, begin_ms: int, end_ms: int, seed: int) -> Iterator[UsageRecord]:
    """Yield calls spread evenly over a time, in order of their start. The same seed gives the same
    calls.

    User n makes one n-th of the first one's calls, with two keys and three preferred models.
    """
    chance = random.Random(seed)
    users = chance.choices(range(USERS), [1 / (n + 1) for n in range(USERS)], k=100_000)
    outcomes = chance.choices(*zip(*OUTCOMES, strict=True), k=100_003)
    for number in range(a_day * (end_ms - begin_ms) // DAY_MS):
        user = users[number % 100_000]
        at_ms = begin_ms + number * DAY_MS // a_day
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
    unpaid = outcome == "refused" and at_ms % UNPAID_IN == 0
    error_code, error_message = ERRORS.get("unpaid" if unpaid else outcome, no_error)
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
        if channel != NO_MARGIN:
            record.upstream_nanos = record.cost_nanos * UPSTREAM_PERCENT // 100
    return record


def fill(db: peewee.Database, calls: Iterator[UsageRecord]) -> tuple[int, Spent]:
    """Insert records. Return their number, and the nanos spent by day and user."""
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
    count += _insert(db, batch)
    while status_sums.fold(db, now_ms() // 1000):
        pass
    return count, spent


def _insert(db: peewee.Database, batch: list[UsageRecord]) -> int:
    if batch:
        columns = columns_of(batch, 0)
        columns["recorded_ms"] = [record.call.started_ms + 5_000 for record in batch]
        transaction(db, lambda: insert_columns(db, "usage_records", columns))
        transaction(db, lambda: status_sums.add_records(db, batch))
    return len(batch)


def copy_days(db: peewee.Database, drawn: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
    """Make `count` days before the drawn ones, as copies of them. Yield each copied day and the new
    one."""
    for statement in _FILLING if is_mysql(db) else ():
        execute(db, statement)
    for number in range(count):
        day = drawn[-1 - number % len(drawn)]
        back_days = (number // len(drawn) + 1) * len(drawn)
        to_day = day_at(day_begin_ms(day) - back_days * DAY_MS)
        for table in (UsageRow, *rollups.TABLES, UsageByRate):
            transaction(db, partial(_copy_day, db, table, day, to_day))
        yield day, to_day


def _copy_day(db: peewee.Database, table: Any, day: int, to_day: int) -> None:
    back_ms = day_begin_ms(day) - day_begin_ms(to_day)
    at = f'("started_ms" - {back_ms})'
    shifts = [f"({at} >> {by}) & 31" for by in range(45, -1, -5)]
    time_part = [f"SUBSTR('{ALPHABET}', ({shift}) + 1, 1)" for shift in shifts]
    parts = [*time_part, f'SUBSTR("id", {len(time_part) + 1})']
    values = {
        "day": str(to_day),
        "id": f"CONCAT({', '.join(parts)})" if is_mysql(db) else " || ".join(parts),
        "started_ms": at,
        "recorded_ms": f'"recorded_ms" - {back_ms}',
    }
    names = [column.column_name for column in table._meta.sorted_fields]
    chosen = ", ".join(values.get(name, f'"{name}"') for name in names)
    name = table._meta.table_name
    copied = f'SELECT {chosen} FROM "{name}" WHERE "day" = {day}'
    execute(db, f'INSERT INTO "{name}" ({quoted(names)}) {copied}')


def write_books(db: peewee.Database, spent: Spent) -> None:
    """Insert the ledger's day lines for the spending, a credit before them, and the wallets. For
    one user in fifty the credit is just used up."""
    balances: dict[str, int] = defaultdict(int)
    for (_, user_id), nanos in spent.items():
        balances[user_id] += nanos
    begin_ms, lines = day_begin_ms(min(day for day, _ in spent)), []
    for number, user_id in enumerate(sorted(balances)):
        credit = balances[user_id] * (100 if number % 50 == 49 else CREDIT_PERCENT) // 100
        balances[user_id] = credit
        line_id = ulid(begin_ms, number.to_bytes(10))
        tail = (f"bench:{user_id}", "paid", begin_ms, None)
        lines.append((line_id, user_id, CREDIT, credit, credit, *tail))
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


def fill_days(db: peewee.Database, rows: int, days: int, seed: int = 1) -> Iterator[str]:
    """Make records of today and of `days` days before, their roll-ups and books, in a store with a
    schema and no records. Yield a line after each step."""
    end_ms, begun = now_ms(), time.monotonic()
    today_ms = day_begin_ms(day_at(end_ms))
    first_ms, drawn_days = today_ms - days * DAY_MS, min(days, DRAWN_DAYS)
    if is_mysql(db):
        make_days(db, day_at(first_ms), days + AHEAD_DAYS)
    drawn_ms, a_day = today_ms - drawn_days * DAY_MS, rows * DAY_MS // (end_ms - first_ms)
    count, spent = fill(db, records(a_day, drawn_ms, end_ms, seed))
    yield f"{count} records in {time.monotonic() - begun:.1f} s"
    rebuilt = sum(1 for _ in rollups.rebuild(db))
    yield f"roll-ups of {rebuilt} days after {time.monotonic() - begun:.1f} s"
    drawn = [day_at(drawn_ms + number * DAY_MS) for number in range(drawn_days)]
    of_days: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for (day, user_id), nanos in spent.items():
        of_days[day].append((user_id, nanos))
    for day, to_day in copy_days(db, drawn, days - drawn_days):
        spent |= {(to_day, user_id): nanos for user_id, nanos in of_days[day]}
    yield f"{days - drawn_days} copied days after {time.monotonic() - begun:.1f} s"
    write_books(db, spent)
    yield f"books after {time.monotonic() - begun:.1f} s"


@click.command()
@store_option
@click.option("--rows", type=click.IntRange(1), required=True)
@click.option("--days", type=click.IntRange(1), default=60, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(url: str, rows: int, days: int, seed: int) -> None:
    """Make the schema, records of today and the last DAYS days, and their roll-ups."""
    with store(url, schema=True) as db:
        for line in fill_days(db, rows, days, seed):
            click.echo(line)


if __name__ == "__main__":
    main()

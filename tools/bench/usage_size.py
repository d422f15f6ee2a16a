"""Times queries of a large usage table made by bench.usage_records.

    python -m tools.bench.usage_size --store mysql://root@127.0.0.1:3306/bench
    python -m tools.bench.usage_size --store sqlite:////tmp/bench.db --drop-oldest-day

Each figure is the slowest of several calls of the function behind a command, on a warm store.
"""

import itertools
import time
from collections.abc import Callable, Sized
from dataclasses import replace

import click
import msgspec
import peewee

from store.calls.usage_queries import LOOK_BACK_MS, Filters, export_rows, find, history, tail
from store.calls.usage_stats import stats
from store.db.database import execute
from store.db.partitions import following_day, next_day, prune
from store.values.usage_record import to_public
from tools.bench.harness import elapsed_ms, peak_kib, store, store_option

TURNS = 3
# The busiest user, one in the middle, the last; models used often, rarely and never; the most and
# the least frequent outcome.
USERS = ("user-0", "user-30", "user-999")
MODELS = ("model-0", "model-7", "model-15")
OUTCOMES = ("ok", "gateway_lost")


def page_figures(db: peewee.Database, size: int) -> None:
    """Time pages of `size` records."""
    choices = [
        Filters(user=user, model=model, outcome=outcome)
        for user in USERS
        for model in MODELS
        for outcome in OUTCOMES
    ]
    _slowest(
        "newest page of one user by model and outcome",
        [_page(db, filters, size) for filters in choices],
    )
    _slowest("the page after it", [_second_page(db, filters, size) for filters in choices])
    _slowest("usage tail of one user", [lambda: tail(db, Filters(user="user-30"), size)])
    _slowest("usage tail", [lambda: tail(db, Filters(), size)])


def sum_figures(db: peewee.Database) -> None:
    """Time sums, as of `usage stats`."""
    _slowest("day x model, all days", [lambda: stats(db, ["day", "model"], Filters())])
    busiest = Filters(user="user-0")
    _slowest("day x model of the busiest user", [lambda: stats(db, ["day", "model"], busiest)])
    _slowest("day x user, all days", [lambda: stats(db, ["day", "user"], Filters())])


def lookup_figures(db: peewee.Database) -> None:
    """Time look-ups of `usage show` and filters by error code, from the newest record back."""
    [newest] = tail(db, Filters(), 1)
    now_ms = newest["started_ms"]
    since_ms = now_ms - LOOK_BACK_MS
    last = Filters(since_ms=since_ms)
    rare = replace(last, error_code="never_met")
    _slowest("a call by its id", [lambda: find(db, newest["id"])])
    _slowest("no such id of a client or vendor", [lambda: find(db, "none")])
    _slowest("no such error code in 7 days", [lambda: tail(db, rare, 20)])
    _slowest("sums by error code of 7 days", [lambda: stats(db, ["error_code"], last)])


def _page(db: peewee.Database, filters: Filters, size: int) -> Callable[[], Sized]:
    return lambda: history(db, filters, size)


def _second_page(db: peewee.Database, filters: Filters, size: int) -> Callable[[], Sized]:
    first = history(db, filters, size)
    return lambda: history(db, filters, size, first[-1]["id"] if first else None)


def _slowest(name: str, works: list[Callable[[], Sized]]) -> None:
    times: list[float] = []
    for work in works:
        work()  # to warm up
        times += [taken_ms for taken_ms, _ in elapsed_ms(work, TURNS)]
    click.echo(f"{name}: {max(times):.1f} ms (best {min(times):.1f})")


def export_rate(db: peewee.Database, rows: int) -> None:
    """Print the records exported as JSON lines in a second, and the memory used."""
    begun, before = time.perf_counter(), peak_kib()
    size = count = 0
    for row in itertools.islice(export_rows(db, Filters()), rows):
        size += len(msgspec.json.encode(to_public(row)))
        count += 1
        if count == rows // 10:
            before = peak_kib()
    seconds, grown = time.perf_counter() - begun, peak_kib() - before
    click.echo(
        f"export: {count} records, {size / 1e6:.0f} MB, {count / seconds:.0f} a second;"
        f" memory grew by {grown} KiB after the first tenth"
    )


def drop_oldest_day(db: peewee.Database) -> None:
    """Prune one day and time it."""
    day = next_day(db, 0)
    if day is None:
        return
    counted = execute(db, 'SELECT COUNT(*) FROM "usage_records" WHERE "day" = ?', (day,))
    count = counted.fetchone()[0]
    begun = time.perf_counter()
    removed = prune(db, following_day(day))
    seconds = time.perf_counter() - begun
    click.echo(f"day {day} with {count} records removed in {seconds * 1000:.0f} ms: {removed}")


@click.command()
@store_option
@click.option("--page", type=click.IntRange(1), default=20, show_default=True)
@click.option("--export-rows", type=click.IntRange(10), default=200_000, show_default=True)
@click.option("--drop-oldest-day", "drop", is_flag=True, help="Also prune the first day.")
def main(url: str, page: int, export_rows: int, drop: bool) -> None:
    """Print the figures."""
    with store(url) as db:
        page_figures(db, page)
        sum_figures(db)
        lookup_figures(db)
        export_rate(db, export_rows)
        if drop:
            drop_oldest_day(db)


if __name__ == "__main__":
    main()

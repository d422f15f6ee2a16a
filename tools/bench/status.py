"""Times the status of channels, as a page or `channel list` requests it.

    python -m tools.bench.status --store sqlite:////tmp/bench.db --channels 200 --models 200

Creates a store with these channels and models, each model served by `each` channels, and sums for
each channel and group: of the last minute, of 24 hours and of 30 days, and running ones. Times the
status, and the sums of 24 hours and 30 days from the rows of hours and days, as they would be read
without running sums.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import click
import peewee
from peewee import fn

from store.channels import status
from store.channels.status_sums import (
    CHANNEL,
    DAY,
    DAY_S,
    GROUP,
    HOUR,
    HOUR_S,
    LAST_DAY,
    LAST_MONTH,
    MINUTE,
    MINUTE_S,
    SUMS,
)
from store.db import migrate
from store.db.database import insert_rows, select_rows, transaction
from store.db.tables.catalog import Channel, Group, Model, Price
from store.db.tables.channels import ChannelSums
from store.values.ids import new_ulid, now_ms
from tools.bench.harness import elapsed_ms, store, store_option

GROUPS = 5
ROUNDS = 3

Row = dict[str, Any]


def _fill(db: peewee.Database, channels: int, models: int, each: int) -> None:
    ids = {f"model-{number}": new_ulid() for number in range(models)}
    names = list(ids)
    groups = [f"group-{number}" for number in range(GROUPS)]
    served = {
        f"channel-{number}": {names[(number + place) % models]: "up" for place in range(each)}
        for number in range(channels)
    }
    pairs = [(CHANNEL, c, m) for c, mapped in served.items() for m in mapped]
    pairs += [(GROUP, g, m) for g in groups for m in names]
    group = {"multiplier_ppm": 1_000_000, "models": ["*"], "entries": []}
    channel = {"vendor": "demo", "family": "messages", "base_url": "u", "groups": groups}
    price = {"effective_ms": 0, "input": 1, "output": 1}

    def work() -> None:
        rows = [{"id": ids[name], "name": name, "created_ms": 0} for name in names]
        insert_rows(db, Model, rows)
        insert_rows(db, Price, [{"model_id": ids[name], **price} for name in names])
        insert_rows(db, Group, [{"id": new_ulid(), "name": name, **group} for name in groups])
        mapped = [{"id": new_ulid(), "name": n, "models": m, **channel} for n, m in served.items()]
        insert_rows(db, Channel, mapped)

    transaction(db, work)
    for rows in _rows(pairs):
        transaction(db, lambda rows=rows: insert_rows(db, ChannelSums, rows))  # type: ignore[misc]


def _rows(pairs: list[tuple[str, str, str]]) -> Iterator[list[Row]]:
    """Yield the rows, those of one span and time together."""
    chance, now_s = random.Random(1), now_ms() // 1000
    times = [(LAST_DAY, 0), (LAST_MONTH, 0), (MINUTE, now_s - now_s % MINUTE_S)]
    times += [(HOUR, now_s - now_s % HOUR_S - ago * HOUR_S) for ago in range(1, 25)]
    times += [(DAY, now_s - now_s % DAY_S - ago * DAY_S) for ago in range(1, 31)]
    seen = {"last_error": "upstream_error", "last_ok_ms": now_ms(), "last_failed_ms": now_ms()}
    for span, at_s in times:
        yield [
            {"span": span, "at_s": at_s, "scope": scope, "name": name, "model": model, **seen}
            | {name: chance.randrange(1000) for name in SUMS}
            for scope, name, model in pairs
        ]


def _without_running(db: peewee.Database, scope: str, at_ms: int) -> list[tuple[Any, ...]]:
    """Return the sums of the longer windows, computed from the rows of hours and days."""
    row, at_s = ChannelSums, at_ms // 1000
    sums = fn.JSON_ARRAY(*(fn.SUM(row._meta.fields[name]) for name in SUMS)).coerce(False)
    sums_rows = []
    for span, since_s in ((HOUR, at_s - DAY_S - HOUR_S), (DAY, at_s - 31 * DAY_S)):
        rows = (row.span == span) & (row.at_s > since_s) & (row.scope == scope)
        query = row.select(row.name, row.model, sums, fn.MAX(row.last_ok_ms))
        sums_rows += select_rows(db, query.where(rows).group_by(row.name, row.model))
    return sums_rows


@click.command()
@store_option
@click.option("--channels", default=200)
@click.option("--models", default=200)
@click.option("--each", default=20, help="Models that a channel serves.")
def main(url: str, channels: int, models: int, each: int) -> None:
    """Print how long each question takes, in ms."""
    with store(url) as db:
        if migrate.up(db):
            _fill(db, channels, models, each)
        _print_figures(db)


def _print_figures(db: peewee.Database) -> None:
    at_ms = now_ms()
    questions: dict[str, Callable[[], list[Any]]] = {
        "all channels": lambda: status.of_channels(db, at_ms),
        "all groups": lambda: status.of_models(db, at_ms),
        "one group": lambda: status.of_models(db, at_ms, ["group-1"]),
        "channels, sums of hours and days alone": lambda: _without_running(db, CHANNEL, at_ms),
        "groups, sums of hours and days alone": lambda: _without_running(db, GROUP, at_ms),
    }
    for name, work in questions.items():
        taken_ms, cpu_ms = map(min, zip(*elapsed_ms(work, ROUNDS), strict=True))
        click.echo(f"{name:40} {len(work()):6} rows {taken_ms:8.1f} ms, CPU {cpu_ms:8.1f} ms")


if __name__ == "__main__":
    main()

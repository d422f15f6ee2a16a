"""Times the status of channels: what a page or `channel list` asks for.

    python -m bench.status --store sqlite:////tmp/bench.db --channels 200 --models 200 --each 20

Makes a store of channels that serve `each` models, with sums of 24 hours, 30 days and the last
minutes for each channel and group.
"""

import json
import random
import time
from collections.abc import Callable

import click
import peewee

from store.channels import status, status_sums
from store.db import migrate
from store.db.database import discard, execute, executemany, is_mysql, open_database, transaction
from store.values.ids import new_ulid, now_ms

GROUPS = 5
ROUNDS = 3


def _fill(db: peewee.Database, channels: int, models: int, each: int) -> None:
    names = [f"model-{number}" for number in range(models)]
    groups = [f"group-{number}" for number in range(GROUPS)]
    served = {
        f"channel-{number}": {names[(number + place) % models]: "up" for place in range(each)}
        for number in range(channels)
    }

    def work() -> None:
        for name in names:
            model_id = new_ulid()
            insert = 'INSERT INTO "models" ("id", "name", "created_ms") VALUES (?, ?, 0)'
            execute(db, insert, (model_id, name))
            insert = 'INSERT INTO "prices" ("model_id", "effective_ms", "input", "output") VALUES'
            execute(db, f"{insert} (?, 0, 1, 1)", (model_id,))
        for name in groups:
            insert = (
                'INSERT INTO "groups" ("id", "name", "multiplier_ppm", "models", "entries")'
                " VALUES (?, ?, 1000000, '[\"*\"]', '[]')"
            )
            execute(db, insert, (new_ulid(), name))
        for name, mapped in served.items():
            insert = (
                'INSERT INTO "channels" ("id", "name", "vendor", "family", "base_url", "groups",'
                " \"models\", \"enabled\") VALUES (?, ?, 'demo', 'messages', 'u', ?, ?, 1)"
            )
            execute(db, insert, (new_ulid(), name, json.dumps(groups), json.dumps(mapped)))
        pairs = [("channel", c, m) for c, mapped in served.items() for m in mapped]
        pairs += [("group", g, m) for g in groups for m in names]
        executemany(db, status_sums._upsert(is_mysql(db)), _rows(pairs))

    transaction(db, work)


def _rows(pairs: list[tuple[str, str, str]]) -> list[tuple[object, ...]]:
    chance, minute_s = random.Random(1), now_ms() // 60_000 * 60
    whole = [0] * len(status_sums.SUMS)
    rows: list[tuple[object, ...]] = []
    for span, at_s in (("last_24h", 0), ("last_30d", 0), ("minute", minute_s)):
        for pair in pairs:
            sums = [chance.randrange(1000) for _ in whole]
            rows.append((span, at_s, *pair, *sums, "upstream_error", now_ms(), now_ms()))
    return rows


def _least_ms(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best * 1000


@click.command()
@click.option("--store", "url", required=True, help="Url of a store of its own.")
@click.option("--channels", default=200)
@click.option("--models", default=200)
@click.option("--each", default=20, help="Models that a channel serves.")
def main(url: str, channels: int, models: int, each: int) -> None:
    """Print how long each query takes, in ms."""
    db = open_database(url)
    if migrate.up(db):
        _fill(db, channels, models, each)
    at_ms = now_ms()
    questions = {
        "all channels": lambda: status.of_channels(db, at_ms),
        "all groups": lambda: status.of_models(db, at_ms),
        "one group": lambda: status.of_models(db, at_ms, ["group-1"]),
    }
    for name, work in questions.items():
        click.echo(f"{name:14} {len(work()):6} rows {_least_ms(work):8.1f} ms")
    discard(db)


if __name__ == "__main__":
    main()

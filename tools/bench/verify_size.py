"""Times the verification of a store made by bench.usage_records, and its memory.

    python -m tools.bench.verify_size --store sqlite:////tmp/bench.db

First `usage verify` (every cost, then the roll-ups), then `books verify`.
"""

from collections.abc import Callable, Iterable

import click
import peewee

from store.calls import rollups, usage_queries
from store.db.database import execute, snapshot_read
from store.money import books
from tools.bench.harness import elapsed_ms, peak_kib, store, store_option


def _timed(name: str, work: Callable[[], Iterable[object]]) -> None:
    faults: list[object] = []
    [(taken_ms, _)] = elapsed_ms(lambda: faults.extend(work()), 1)
    click.echo(
        f"{name}: {taken_ms / 1000:.1f} s, {len(faults)} faults,"
        f" peak memory so far {peak_kib() / 1024:.0f} MiB"
    )


def figures(db: peewee.Database) -> None:
    """Print each step and its time."""
    query = 'SELECT COUNT(*) FROM "usage_records"'
    count = snapshot_read(db, lambda: execute(db, query).fetchone()[0])
    _timed(f"nothing of {count} records", lambda: ())
    _timed("every cost", lambda: usage_queries.verify(db))
    _timed("roll-ups", lambda: rollups.verify(db))
    _timed("books", lambda: books.verify(db))


@click.command()
@store_option
def main(url: str) -> None:
    """Print the figures."""
    with store(url) as db:
        figures(db)


if __name__ == "__main__":
    main()

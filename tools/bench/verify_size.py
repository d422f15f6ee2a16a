"""Times the verification of a store made by bench.usage_records, and the memory it takes.

    python -m tools.bench.verify_size --store sqlite:////tmp/bench.db

First `usage verify` (every cost, then the roll-ups), then `books verify`.
"""

import resource
import time
from collections.abc import Callable, Iterable

import click
import peewee

from store.calls import rollups, usage_queries
from store.db.database import discard, execute, open_database, snapshot_read
from store.money import books


def _timed(name: str, work: Callable[[], Iterable[object]]) -> None:
    begun = time.perf_counter()
    faults = sum(1 for _ in work())
    seconds = time.perf_counter() - begun
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    click.echo(f"{name}: {seconds:.1f} s, {faults} faults, peak memory so far {peak_mib:.0f} MiB")


def figures(db: peewee.Database) -> None:
    """Print each step and its time."""
    query = 'SELECT COUNT(*) FROM "usage_records"'
    count = snapshot_read(db, lambda: execute(db, query).fetchone()[0])
    _timed(f"nothing of {count} records", lambda: ())
    _timed("every cost", lambda: usage_queries.verify(db))
    _timed("roll-ups", lambda: rollups.verify(db))
    _timed("books", lambda: books.verify(db))


@click.command()
@click.option("--store", "url", required=True, help="store.url that bench.usage_records filled.")
def main(url: str) -> None:
    """Print the figures."""
    db = open_database(url, read_timeout_s=3600)
    try:
        figures(db)
    finally:
        discard(db)


if __name__ == "__main__":
    main()

"""`usage prune` and `usage rebuild-rollups`: removal of old records, and new sums."""

import itertools
import sys
from collections.abc import Callable

import click

from commands.output import FAILED, note, print_result
from commands.progress import Line, progress
from commands.store_access import Access, actor, on_whole_store
from commands.times import Duration
from store.calls import rollups
from store.db import audit, partitions
from store.db.database import database_ms, place
from store.values.ids import day_at


@click.command()
@click.option(
    "--older-than",
    "age_s",
    type=Duration(),
    required=True,
    help="Remove records of days that ended longer ago than this, like 90d.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", is_flag=True, help="Remove without asking.")
@on_whole_store
def prune(access: Access, as_json: bool, age_s: int, dry_run: bool, yes: bool) -> int:
    """Remove the records of old days (UTC); sums, ledger and balances stay.

    Asks for confirmation on a terminal. Safe while gateways run. MySQL drops each day's partition;
    SQLite deletes in small batches and reuses the space for new records.
    """
    asking = not yes and sys.stdin.isatty() and sys.stderr.isatty()
    before = day_at(max(0, database_ms(access.db) - age_s * 1000))
    day = f"{before // 10_000}-{before // 100 % 100:02d}-{before % 100:02d}"
    if dry_run:
        count = partitions.count_before(access.db, before)
        text = f"would remove {count} records of days before {day}"
        print_result(as_json, {"before": day, "records": count, "dry_run": True}, text)
        return 0
    if asking:
        count = partitions.count_before(access.db, before)
        question = f"Remove {count} records of days before {day} from {place(access.db)}?"
        if not click.confirm(question, err=True, default=False):
            note("nothing removed")
            return FAILED
    audit.write(access.db, audit.Act(actor(), "prune", "usage", day))
    with progress(as_json) as line:
        removed = partitions.prune(access.db, before, _telling_pause(line))
    counts = {"partitions": removed.partitions, "records": removed.records}
    text = f"{removed.partitions} partitions dropped, {removed.records} records deleted"
    text = f"removed days before {day}: {text}"
    print_result(as_json, {"before": day, **counts}, text)
    return 0


def _telling_pause(line: Line) -> Callable[[], None]:
    """Return a function that pauses after each portion and reports how much is deleted."""
    portions = itertools.count(1)

    def pause() -> None:
        line.tell(f"pruning: {next(portions) * partitions.DELETE_ROWS} records deleted")
        partitions.short_pause()

    return pause


@click.command("rebuild-rollups")
@on_whole_store
def rebuild_rollups(access: Access, as_json: bool) -> None:
    """Rebuild the sums behind `usage stats` from the records.

    Safe while gateways run. Sums of days whose records were pruned are kept as they are.
    """
    days = 0
    with progress(as_json) as line:
        for days, day in enumerate(rollups.rebuild(access.db), 1):
            line.tell(f"rebuilding: {day} done, {days} days")
    print_result(as_json, {"days": days}, f"rebuilt the sums of {days} days")

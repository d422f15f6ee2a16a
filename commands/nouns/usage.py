"""`usage`: the records of calls: the newest ones, a live tail, all of them, their sums, their
check.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
import peewee

from commands.nouns import usage_upkeep
from commands.nouns.usage_filters import bounded, filter_options, filters_of, needs_bound
from commands.nouns.usage_show import show
from commands.output import FAILED, data_options, print_json, print_table, printable
from commands.progress import Line, progress
from commands.store_access import Access, on_store, on_whole_store, opened_store
from commands.subcommands import Noun
from commands.tables import room
from commands.times import since_option
from store.calls import rollups
from store.calls.usage_queries import OVERLAP_MS, PAGE_ROWS, Filters, Row, export_rows, follow
from store.calls.usage_queries import tail as newest_rows
from store.calls.usage_queries import verify as verify_costs
from store.calls.usage_stats import CLASSES, DIMENSIONS, MARGIN, ROWS_MAX, SORTS, Order
from store.calls.usage_stats import stats as sums_of
from store.db.database import database_ms, place
from store.values.ids import day_at
from store.values.meters import METERS
from store.values.usage import SIDES, TOKEN_COUNTS
from store.values.usage_record import csv_header, csv_line, csv_row, to_public

DEFAULT_TAIL_RECORDS = 20
MAX_TAIL_RECORDS = 10_000

Write = Callable[[Mapping[str, Any]], None]

# The columns of a record as text, and their width; the last column has no limit.
TEXT_COLUMNS: Mapping[str, int] = {
    "recorded_at": 24,
    "id": 26,
    "user": 12,
    "model": 20,
    "channel": 14,
    "status": 6,
    "outcome": 18,
    "tokens": 13,
    "ttft_ms": 7,
    "duration_ms": 11,
    "cost": 12,
    "error": 0,
}

# The columns for a terminal that is too narrow for the others.
NARROW_COLUMNS: Mapping[str, int] = {
    "recorded_at": 8,
    "id": 26,
    "model": 12,
    "status": 6,
    "outcome": 14,
    "cost": 9,
}
_TIME_OF_DAY = slice(11, 19)

command = Noun("usage", help="Show, export, sum up and verify usage records.", no_args_is_help=True)
command.add_command(show)
command.add_command(usage_upkeep.prune)
command.add_command(usage_upkeep.rebuild_rollups)


def _dimensions(_context: click.Context, _option: click.Parameter, text: str) -> list[str]:
    """Parse --by. Raises UsageError for an unknown or repeated dimension."""
    names = [name.strip().replace("-", "_") for name in text.split(",")]
    names = ["key_id" if name == "key" else name for name in names]
    for name in names:
        if name not in DIMENSIONS or names.count(name) > 1:
            dimensions = ", ".join(DIMENSIONS)
            raise click.BadParameter(f"{name!r}; write some of these once: {dimensions}")
    return names


@command.command()
@click.option("-f", "--follow", "following", is_flag=True, help="Keep printing new records.")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_TAIL_RECORDS),
    default=DEFAULT_TAIL_RECORDS,
    show_default=True,
    help="How many of the newest records to show.",
)
@filter_options
@data_options
def tail(config: Path | None, as_json: bool, following: bool, limit: int, **filters: Any) -> None:
    """Show the newest records, oldest first; with -f keep printing new ones until Ctrl-C.

    With --json: one array; with -f, one object per line.
    """
    try:
        with opened_store(config) as access:
            selected = filters_of(access.db, filters)
            if needs_bound(selected):
                selected = bounded(access.db, selected, "searching only calls started since")
            if following:
                _follow(access.db, selected, limit, _write_line if as_json else _text_writer())
                return
            records = [to_public(row) for row in newest_rows(access.db, selected, limit)]
    except KeyboardInterrupt:
        if following:
            return  # the usual end
        raise
    if as_json:
        print_json(records)
    else:
        _write_all(records, _text_writer())


@command.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(("ndjson", "csv")),
    default="ndjson",
    show_default=True,
    help="One JSON object or one CSV row per line.",
)
@filter_options
@on_store
def export(access: Access, as_json: bool, form: str, **filters: Any) -> None:
    """Print all records, ordered by id.

    With --json: one array instead of one object per line.
    """
    out = sys.stdout.buffer
    with progress(as_json or sys.stdout.isatty()) as line:
        rows = _counted(export_rows(access.db, filters_of(access.db, filters)), line)
        records = map(to_public, rows)
        for piece in _array(records) if as_json else _lines(records, form):
            out.write(piece)
    out.flush()


@command.command()
@click.option(
    "--by",
    callback=_dimensions,
    default="day,model",
    show_default=True,
    help=f"Group by these, comma-separated: {', '.join(DIMENSIONS)}.",
)
@click.option("--sort", type=click.Choice(SORTS), help="Sort by this sum, highest first.")
@click.option("--top", type=click.IntRange(1, ROWS_MAX), help="Show only the first rows.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "csv")),
    default="text",
    show_default=True,
    help="A table with a line of totals, or CSV.",
)
@filter_options
@on_whole_store
def stats(access: Access, as_json: bool, form: str, by: list[str], **filters: Any) -> None:
    """Sum up calls, tokens and cost, including days whose records were pruned.

    Sums by status, by user, key or group together with channel, or over times that are not whole
    hours are computed from the records, which takes longer and covers only days that were not
    pruned. The totals cover all selected calls, even with --top; CSV and JSON have none.
    """
    order = Order(filters.pop("sort"), filters.pop("top"), margin=True)
    selected = filters_of(access.db, filters)
    rows = sums_of(access.db, by, selected, order)
    totals = (
        sums_of(access.db, (), selected, Order(margin=True))
        if form == "text" and not as_json
        else []
    )
    if as_json:
        print_json(rows)
        return
    if form == "csv":
        columns = [*by, "calls", *CLASSES, *TOKEN_COUNTS, "cost", *MARGIN]
        lines = [csv_row(columns), *(csv_row(row[name] for name in columns) for row in rows)]
        sys.stdout.buffer.write("".join(lines).encode())
        return
    if len(rows) > 1 or order.top is not None:
        rows += [{by[0]: "total", **row} for row in totals]
    for row in rows:
        row["tokens"] = _tokens(row)
    margin = MARGIN if any(row["cost_known"] != "0" for row in rows) else ()
    print_table(rows, [*by, "calls", *CLASSES, "tokens", "cost", *margin])


@command.command()
@since_option
@on_whole_store
def verify(access: Access, as_json: bool, since_ms: int | None) -> int:
    """Recompute every cost from its record; exit code 1 and the ids of those that differ.

    Also checks the sums behind `usage stats` (with --since, those of that UTC day and later);
    `usage rebuild-rollups` repairs them.
    """
    faults = []
    with progress(as_json) as line:
        for call_id, fault in _faults(access.db, line, since_ms):
            faults.append({"id": call_id, "fault": fault})
            line.clear()
            if not as_json:
                click.echo(f"{call_id}: {fault}" if call_id else fault)
    store = place(access.db)
    if as_json:
        print_json({"ok": not faults, "store": store, "faults": faults})
    elif not faults:
        click.echo(f"every cost in {store} is correct")
    return FAILED if faults else 0


def _counted(rows: Iterable[Row], line: Line) -> Iterator[Row]:
    """Yield the rows, and show their number in the progress line."""
    for number, row in enumerate(rows):
        if number % PAGE_ROWS == 0:
            line.tell(f"exporting: {number} records")
        yield row


def _faults(
    db: peewee.Database, line: Line, since_ms: int | None
) -> Iterator[tuple[str | None, str]]:
    """Yield ids and faults. The id is None for the fault of a sum."""
    right = True

    def report(count: int) -> None:
        line.tell(f"verifying: {count} records")

    for call_id, fault in verify_costs(db, report, since_ms):
        right = False
        yield call_id, fault
    if right:  # otherwise one wrong record would report many wrong sums
        for fault in rollups.verify(db, day_at(since_ms or 0)):
            yield None, fault


def _follow(db: peewee.Database, filters: Filters, limit: int, write: Write) -> None:
    """Write the newest records, then every new one, each once, until interrupted.

    Rows found before the first pause existed already. Following starts early enough to include a
    record that becomes visible a little late.
    """
    start_ms = database_ms(db) - OVERLAP_MS
    newest = newest_rows(db, filters, limit)
    older = (row for row in newest if row["recorded_ms"] < start_ms)
    backlog: deque[Row] | None = deque(older, maxlen=limit)

    def pause(seconds: float) -> None:
        nonlocal backlog
        if backlog is not None:
            _write_all(map(to_public, backlog), write)
            backlog = None
        time.sleep(seconds)

    for row in follow(db, filters, start_ms, pause):
        if backlog is None:
            write(to_public(row))
        else:
            backlog.append(row)


def _write_all(records: Iterable[Mapping[str, Any]], write: Write) -> None:
    for record in records:
        write(record)


def _write_line(record: Mapping[str, Any]) -> None:
    # not click.echo: records are UTF-8 whatever the terminal's encoding is
    out = sys.stdout.buffer
    out.write(msgspec.json.encode(record) + b"\n")
    out.flush()


def _lines(records: Iterable[Mapping[str, Any]], form: str) -> Iterator[bytes]:
    if form == "csv":
        yield csv_header().encode()
        for record in records:
            yield csv_line(record).encode()
        return
    for record in records:
        yield msgspec.json.encode(record) + b"\n"


def _array(records: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    before = b"["
    for record in records:
        yield before + msgspec.json.encode(record)
        before = b",\n"
    yield b"]\n" if before != b"[" else b"[]\n"


def _text_writer() -> Write:
    """Return a writer of records as lines of fixed width under a header."""
    wide = room()
    narrow = 0 < wide < sum(TEXT_COLUMNS.values()) + len(TEXT_COLUMNS)
    columns = NARROW_COLUMNS if narrow else TEXT_COLUMNS
    head = {name: name for name in columns} | ({"recorded_at": "recorded"} if narrow else {})
    click.echo(_text_line(head, columns))

    def write(record: Mapping[str, Any]) -> None:
        message = record["error_message"]
        error = f"{record['error_code']}: {message}" if message else record["error_code"]
        cells = {**record, "tokens": _tokens(record), "error": error}
        if narrow:
            cells["recorded_at"] = record["recorded_at"][_TIME_OF_DAY]
        click.echo(_text_line(cells, columns))

    return write


def _tokens(record: Mapping[str, Any]) -> str:
    """Return the tokens read and written, of a record or of sums."""
    meters = record.get("meters") or {name: record[f"{name}_tokens"] for name in SIDES}
    counts = [(METERS[name].side, count) for name, count in meters.items()]
    written = sum(count for side, count in counts if side in ("output", "reasoning"))
    return f"{sum(count for side, count in counts if side) - written}/{written}"


def _text_line(record: Mapping[str, Any], columns: Mapping[str, int]) -> str:
    texts = ("-" if record[name] is None else str(record[name]) for name in columns)
    cells = map(_fitted, map(printable, texts), columns.values())
    return " ".join(cells).rstrip()


def _fitted(text: str, width: int) -> str:
    """Return a text that fits its column. A longer one is cut and marked; --json has the whole
    text."""
    return text[: width - 1] + "…" if 0 < width < len(text) else text.ljust(width)

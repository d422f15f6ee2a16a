"""`usage`: the records of calls: the newest ones, as they come, all of them, and their proof."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
import peewee

from commands.output import FAILED, config_option, json_option, print_json
from commands.store_access import opened_store
from commands.subcommands import Noun
from commands.times import Moment
from store.ids import now_ms
from store.usage import csv_header, csv_line, to_public
from store.usage_queries import OVERLAP_MS, Filters, Row, export_rows, follow
from store.usage_queries import tail as newest_rows
from store.usage_queries import verify as verify_costs

DEFAULT_TAIL_RECORDS = 20
MAX_TAIL_RECORDS = 10_000

F = TypeVar("F", bound=Callable[..., Any])
Write = Callable[[Mapping[str, Any]], None]

FILTERS: Mapping[str, tuple[type, str]] = {
    "user": (str, "Name of a user."),
    "key_id": (str, "Id of a key."),
    "model": (str, "Model as the client asked for it."),
    "endpoint": (str, "Path, like /v1/messages."),
    "channel": (str, "Name of the channel that answered."),
    "outcome": (str, "ok, refused, upstream_error, client_gone …"),
    "status": (int, "HTTP status the client got."),
    "request_id": (str, "Id of one call, as its x-request-id said."),
    "client_request_id": (str, "The client's own X-Client-Request-Id."),
}
# The text form of a record: columns and their width; the last one takes what it needs.
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

command = Noun("usage", help="Show, export and verify usage records.", no_args_is_help=True)


def filter_options(verb: F) -> F:
    """The options that choose records, given to the command as keywords of Filters."""
    for name, (kind, text) in reversed(list(FILTERS.items())):
        verb = click.option("--" + name.replace("_", "-"), type=kind, help=text)(verb)
    return verb


@command.command()
@click.option("-f", "--follow", "following", is_flag=True, help="Go on as records are written.")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_TAIL_RECORDS),
    default=DEFAULT_TAIL_RECORDS,
    show_default=True,
    help="How many of the newest records are shown.",
)
@filter_options
@config_option
@json_option
def tail(config: Path | None, as_json: bool, following: bool, limit: int, **filters: Any) -> None:
    """Show the newest records, oldest of them first; with -f go on until Ctrl-C.

    With --json one array; with -f one object a line.
    """
    try:
        with opened_store(config) as access:
            wanted = Filters(**filters)
            if following:
                _follow(access.db, wanted, limit, _write_line if as_json else _text_writer())
                return
            records = [to_public(row) for row in newest_rows(access.db, wanted, limit)]
    except KeyboardInterrupt:
        if following:
            return  # that is how it ends
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
    help="One JSON object a line, or one line of CSV.",
)
@filter_options
@click.option(
    "--since", type=Moment(), help="Calls begun since: a time, a day, or how long ago (24h)."
)
@click.option("--until", type=Moment(), help="Calls begun before.")
@config_option
@json_option
def export(config: Path | None, as_json: bool, form: str, **filters: Any) -> None:
    """Print all records in order of id.

    With --json one array instead of one object a line.
    """
    filters["since_ms"], filters["until_ms"] = filters.pop("since"), filters.pop("until")
    out = sys.stdout.buffer
    with opened_store(config) as access:
        records = map(to_public, export_rows(access.db, Filters(**filters)))
        for piece in _array(records) if as_json else _lines(records, form):
            out.write(piece)
    out.flush()


@command.command()
@config_option
@json_option
def verify(config: Path | None, as_json: bool) -> int:
    """Recompute every cost from its own record; exit code 1 and the ids when one differs."""
    found = False
    faults = []
    with opened_store(config) as access:
        for call_id, fault in verify_costs(access.db):
            found = True
            if as_json:
                faults.append({"id": call_id, "fault": fault})
            else:
                click.echo(f"{call_id}: {fault}")
    if as_json:
        print_json({"ok": not found, "faults": faults})
    elif not found:
        click.echo("every cost is right")
    return FAILED if found else 0


def _follow(db: peewee.Database, filters: Filters, limit: int, write: Write) -> None:
    """Write the newest records, then every new one, each once, for ever.

    What the walk finds before its first pause was there already. It begins early enough that a
    record which becomes visible a little late is not lost.
    """
    start_ms = now_ms() - OVERLAP_MS
    known = newest_rows(db, filters, limit)
    older = (row for row in known if row["recorded_ms"] < start_ms)
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
    """Writes records as lines under a line of names; widths are fixed, for more lines will come."""
    click.echo(_text_line(dict(zip(TEXT_COLUMNS, TEXT_COLUMNS, strict=True))))

    def write(record: Mapping[str, Any]) -> None:
        read = sum(
            record[f"{name}_tokens"]
            for name in ("input", "cache_read", "cache_write", "cache_write_1h")
        )
        written = record["output_tokens"] + record["reasoning_tokens"]
        message = record["error_message"]
        error = f"{record['error_code']}: {message}" if message else record["error_code"]
        click.echo(_text_line({**record, "tokens": f"{read}/{written}", "error": error}))

    return write


def _text_line(record: Mapping[str, Any]) -> str:
    cells = (_cell(record[name]).ljust(width) for name, width in TEXT_COLUMNS.items())
    return " ".join(cells).rstrip()


def _cell(value: object) -> str:
    text = "-" if value is None else str(value)
    # clients choose some of these texts: they must not steer the terminal
    return "".join(char if char.isprintable() else "�" for char in text)

"""`usage show`: one call, with the lines of its cost and the result of each attempt."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from commands.output import note, print_json, print_table, printable
from commands.store_access import Access, on_whole_store
from commands.times import Moment
from store.calls.usage_queries import Row, cost_lines, find
from store.money import ledger
from store.money.wallet import refunds_of
from store.values.errors import NotFound
from store.values.meters import count_in_unit
from store.values.usage_record import rfc3339, to_public

# The lines that describe a call: the name, and the fields from which it is made.
_LINES: Mapping[str, tuple[str, ...]] = {
    "started": ("started_at",),
    "took": ("duration_ms", "ttft_ms"),
    "user": ("user", "group"),
    "key": ("key_id", "key_name"),
    "client": ("client_ip", "user_agent"),
    "requested": ("endpoint", "model", "stream"),
    "channel": ("channel", "upstream_model"),
    "served": ("served",),
    "rate": ("rate",),
    "no price": ("unpriced",),
    "others": ("other_models",),
    "outcome": ("outcome", "status"),
    "error": ("error_code", "error_message"),
    "client's id": ("client_request_id",),
    "vendor's id": ("upstream_request_id",),
    "node": ("node",),
    "trace": ("trace_id",),
}


@click.command("show")
@click.argument("call_id", metavar="ID")
@click.option(
    "--since",
    type=Moment(),
    help="How far back to search for a client's or vendor's id.  [default: all records]",
)
@on_whole_store
def show(access: Access, as_json: bool, call_id: str, since: int | None) -> None:
    """Show one call, given by its request id, the client's id or the vendor's id.

    If several calls share a client's id, the newest is shown and the others are listed.
    """
    rows = find(access.db, call_id, since or 0)
    if not rows:
        raise NotFound(_nowhere(call_id, since))
    newest, *older = rows
    refunds = [ledger.to_public(line) for line in refunds_of(access.db, newest["id"])]
    record = {**to_public(newest), "cost_lines": cost_lines(newest), "refunds": refunds}
    if as_json:
        print_json(record)
    else:
        _print(record, newest, access.currency)
    if older:
        note(f"the newest of {len(rows)} calls with this id; the others, newest first:")
        for row in older:
            note(f"  {row['id']}  {rfc3339(row['started_ms'])}")


def _nowhere(call_id: str, since_ms: int | None) -> str:
    started = "" if since_ms is None else f" started since {rfc3339(since_ms)}"
    older = "" if since_ms is None else "; for older ones: an earlier --since"
    return (
        f'no record has the id "{call_id}", and no call{started} has it from its client or'
        f" vendor{older}. Calls without a known key leave no record: look for the id in the"
        " gateway's log"
    )


def _print(record: Mapping[str, Any], row: Row, currency: str) -> None:
    width = max(map(len, _LINES))
    click.echo(f"call {record['id']}")
    for name, fields in _LINES.items():
        if words := list(_words(name, [record[field] for field in fields])):
            click.echo(f"  {name.ljust(width)}  {printable(', '.join(words))}")
    if record["attempts"]:
        click.echo("\nattempts")
        columns = ("channel", "status", "ms", "error", "detail")
        print_table(record["attempts"], columns)
    click.echo(f"\ncost ({currency})")
    if record["cost_lines"]:
        print_table([*map(_cost_row, record["cost_lines"])], ("meter", "count", "price", "amount"))
    for line in _sum_of(record, row):
        click.echo(line)


def _cost_row(line: Mapping[str, Any]) -> dict[str, Any]:
    meter = line["meter"]
    if meter is None:
        return {**line, "meter": line["model"]}
    return {**line, "count": count_in_unit(meter, line["count"])}


def _words(name: str, values: list[Any]) -> Iterator[str]:
    if name == "took":
        units = ("{} ms", "first byte after {} ms")
        yield from (form.format(v) for form, v in zip(units, values, strict=True) if v is not None)
    elif name == "requested":
        endpoint, model, stream = values
        kind = {None: None, True: "streamed", False: "not streamed"}[stream]
        yield from filter(None, (endpoint, model and f"model {model}", kind))
    elif name in ("served", "rate"):
        yield from (f"{condition} {value}" for condition, value in values[0].items())
    elif name == "no price":
        yield from (f"{entry['meter']} {entry['count']}" for entry in values[0])
    elif name == "others":
        for other in values[0]:
            counts = (f"{meter} {count}" for meter, count in other["tokens"].items())
            yield f"{other['model']} ({', '.join(counts)})"
    elif name == "error":
        if text := ": ".join(filter(None, values)):
            yield text
    else:
        yield from (str(value) for value in values if value is not None)


def _sum_of(record: Mapping[str, Any], row: Row) -> Iterator[str]:
    """Yield the steps from the cost lines to the charges."""
    if not record["cost_lines"]:
        yield f"nothing was charged (usage: {record['usage_source']})"
        return
    yield f"× multiplier {record['multiplier']}, rounded up = {record['cost']}"
    yield f"usage: {record['usage_source']}"
    for charge in record["charges"]:
        yield f"charged to {printable(charge['to'])}: {charge['amount']}"
    for refund in record["refunds"]:
        yield f"refunded {refund['amount']} at {refund['at']}: {printable(refund['reason'])}"
    if row["reported_usage"] is not None:
        yield f"the vendor reported: {printable(row['reported_usage'])}"

"""The usage record: its fields inside the gateway, as a table row, and in public form.

Inside, times are milliseconds and money is nanos. `UsageRecord` is also the `close` line of a
journal, so fields may only be added at the end and with a default. Outside, times are RFC 3339,
money is decimal strings (interface: "A usage record"). Pure: queries are in usage_queries.
"""

import csv
import datetime
import functools
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from store.values import pricing
from store.values.ids import ULID_CHARS, day_of
from store.values.meters import METERS
from store.values.pricing import format_money, parse_money, prices_json, rate_of_text
from store.values.usage import MORE_TOKENS, NOT_REPORTED, SIDES, TOKEN_COUNTS, Served, Usage

WALLET = "wallet"
"""The `to` of a charge that the user's wallet pays, and the `billed_to` of its record."""

MONEY_CODES = ("insufficient_quota", "subscription_quota_exceeded")
"""Error codes of calls that wallet, plan or limit did not cover."""

OUTCOMES = (
    *("ok", "refused", "upstream_error", "upstream_truncated", "timeout", "client_gone"),
    *("gateway_lost", "drained", "internal_error"),
)
"""The possible outcomes of a call."""

CLOSE_TAG = "C"


class Charge(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Part of a cost and its payer: `wallet` or `subscription:PLAN`. `account`: the id of a
    subscription's window, empty for the user's wallet."""

    to: str
    amount_nanos: int
    account: str = ""


class AttemptRecord(msgspec.Struct, gc=False, omit_defaults=True):
    """One attempt of a call at one channel. `error` is None if it was accepted.

    `detail`: for a failed attempt, the cleaned message of the upstream, or of the failed
    connection. `dropped`: paths of the client's body that a translation did not carry. Fields with
    their default are not written.
    """

    channel: str
    status: int | None = None
    error: str | None = None
    ms: int = 0
    detail: str | None = None
    dropped: tuple[str, ...] = ()


class StoredAt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of an object that a call had stored: channel and fingerprint of its upstream key.
    Without a channel, the call had it deleted. `mark` is the digest of its id, `more` those of
    other ids stored there."""

    mark: str
    channel_id: str = ""
    fingerprint: str = ""
    more: tuple[str, ...] = ()


class OtherCost(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The counts and the cost of another model inside a call: its public name if it has one, and
    the exact cost before the multiplier as a decimal string."""

    model: str
    usage: Usage
    cost: str


class Receipt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Parts of a bill that few calls have. `rate`: `Rate.text` of the chosen rate, None for the
    plain rate. `unpriced`: (meter or feature, count) without a price."""

    rate: str | None = None
    served: Served = NOT_REPORTED
    unpriced: tuple[tuple[str, int], ...] = ()
    other_models: tuple[OtherCost, ...] = ()


NO_RECEIPT = Receipt()


class CallFacts(msgspec.Struct, array_like=True, gc=False):
    """The facts of a call at its admission. None: unknown or absent.

    Built once for each call and shared by its journal lines and its record. `prices` is `Rate.text`
    of the plain rate. `limit_account`, `user_limit_account`: the spend limits of key and user that
    the cost counts against, which are not columns.
    """

    started_ms: int
    user_id: str
    user: str
    key_id: str
    key_name: str
    group: str
    endpoint: str
    family: str
    model: str | None = None
    stream: bool | None = None
    prices: str | None = None
    multiplier_ppm: int | None = None
    client_request_id: str | None = None
    client_ip: str | None = None
    user_agent: str | None = None
    limit_account: str | None = None
    trace_id: str | None = None
    user_limit_account: str | None = None


class UsageRecord(msgspec.Struct, array_like=True, tag=CLOSE_TAG, gc=False):
    """The outcome of a call. Counts are disjoint. None means unknown or absent.

    `reported_usage`: the vendor's usage as JSON text. A record with usage_source `none` was not
    charged, whatever its prices say. `stored`: what the vendor stores of it, which is not a column.
    """

    id: str
    call: CallFacts
    upstream_family: str | None = None
    upstream_model: str | None = None
    channel: str | None = None
    status: int | None = None
    outcome: str = "ok"
    error_code: str | None = None
    error_message: str | None = None
    usage: Usage = Usage()
    usage_source: str = "none"
    cost_nanos: int = 0
    charges: tuple[Charge, ...] = ()
    reported_usage: str | None = None
    ttft_ms: int | None = None
    duration_ms: int | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    upstream_request_id: str | None = None
    node: str | None = None
    stored: StoredAt | None = None
    receipt: Receipt = NO_RECEIPT
    upstream_nanos: int | None = None

    @property
    def rate_text(self) -> str | None:
        """Return `Rate.text` of the rate at which the call is charged."""
        return self.receipt.rate or self.call.prices


_NO_COLUMNS = ("limit_account", "user_limit_account", "stored", "more", "extras")

COLUMNS = (
    *("day", "recorded_ms", "billed_to", *MORE_TOKENS),
    *(
        name
        for struct in (UsageRecord, Usage, CallFacts)
        for name in struct.__struct_fields__
        if name not in ("call", "usage", *_NO_COLUMNS)
    ),
)
"""The columns of usage_records."""

# Columns that few records fill, with their defaults in the table. An insert leaves them out if no
# record fills them. Only some of the possible columns are listed: each set of columns is a
# statement of its own, which SQLite compiles (0.2 ms) and caches (0.1 MB).
SPARSE_COLUMNS = {
    **dict.fromkeys(("error_code", "error_message", "reported_usage", "client_request_id")),
    "trace_id": None,
    **dict.fromkeys(("cache_write_tokens", "cache_write_1h_tokens"), 0),
    "upstream_nanos": None,
}

FIELDS = (
    *("id", "started_at", "recorded_at", "user", "key_id", "key_name", "group", "endpoint"),
    *("family", "upstream_family", "model", "upstream_model", "channel", "stream", "status"),
    *("outcome", "error_code", "error_message", *TOKEN_COUNTS),
    *("usage_source", "prices", "multiplier", "cost", "billed_to", "charges", "reported_usage"),
    *("ttft_ms", "duration_ms", "attempts", "client_request_id", "upstream_request_id"),
    *("client_ip", "user_agent", "node", "trace_id"),
    *("meters", "rate", "served", "unpriced", "other_models", "upstream_cost"),
)
"""The public fields in the order of interface §6, also the header of the CSV form."""

TEXT_LIMITS_CHARS = {
    **dict.fromkeys(("user", "key_name", "group", "channel", "node"), 128),
    **dict.fromkeys(("family", "upstream_family", "outcome", "usage_source"), 32),
    **dict.fromkeys(("model", "upstream_model", "endpoint", "user_agent"), 256),
    **dict.fromkeys(("client_request_id", "upstream_request_id"), 128),
    **{"error_code": 64, "error_message": 1000, "client_ip": 64},
}
REPORTED_USAGE_LIMIT_CHARS = 2_048
ATTEMPTS_LIMIT = 16
DETAIL_LIMIT_CHARS = 500  # of an attempt
DROPPED_LIMIT = 32  # fields of a request that an attempt did not carry
DROPPED_LIMIT_CHARS = 96

_encode_json = msgspec.json.Encoder().encode


def sound_text(text: str, limit_chars: int) -> str:
    """Return the text cut to a limit, with `?` for lone surrogates, which UTF-8 cannot
    represent."""
    return text[:limit_chars].encode("utf-8", "replace").decode()


def clipped(record: UsageRecord) -> UsageRecord:
    """Return a copy whose texts fit their columns and are valid UTF-8; numbers and money are
    kept."""
    reported = record.reported_usage
    if reported is not None:
        # Truncated JSON is not JSON.
        short = len(reported) <= REPORTED_USAGE_LIMIT_CHARS
        reported = sound_text(reported, REPORTED_USAGE_LIMIT_CHARS) if short else None
    attempts = [
        AttemptRecord(
            sound_text(attempt.channel, TEXT_LIMITS_CHARS["channel"]),
            attempt.status,
            attempt.error and sound_text(attempt.error, TEXT_LIMITS_CHARS["error_message"]),
            attempt.ms,
            attempt.detail and sound_text(attempt.detail, DETAIL_LIMIT_CHARS),
            tuple(
                sound_text(loss, DROPPED_LIMIT_CHARS) for loss in attempt.dropped[:DROPPED_LIMIT]
            ),
        )
        for attempt in record.attempts[:ATTEMPTS_LIMIT]
    ]
    return msgspec.structs.replace(
        record,
        call=msgspec.structs.replace(record.call, **_sound_texts(record.call)),
        **_sound_texts(record),
        reported_usage=reported,
        attempts=tuple(attempts),
    )


def _sound_texts(part: CallFacts | UsageRecord) -> dict[str, Any]:
    return {
        name: sound_text(text, TEXT_LIMITS_CHARS[name])
        for name in part.__struct_fields__
        if name in TEXT_LIMITS_CHARS and (text := getattr(part, name)) is not None
    }


def record_day(call_id: str) -> int:
    """Return the `day` of the record of a call, as ids.day_of, cached. Raises ValueError if the id
    is not a ULID."""
    # 8 characters of an id cover 1024 ms. A day has exactly 84,375 of these blocks, so none crosses
    # midnight.
    return _day_of_block(call_id[:8])


@functools.lru_cache(maxsize=4096)
def _day_of_block(block: str) -> int:
    return day_of(block.ljust(ULID_CHARS, "0"))


def columns_of(records: Sequence[UsageRecord], recorded_ms: int) -> dict[str, Sequence[Any]]:
    """Return the columns of usage_records, in their order, with a value for each record. Sparse
    columns that no record fills are left out. Needs at least one record."""
    columns: dict[str, Sequence[Any]] = {
        **_columns(records),
        **_columns([record.usage for record in records]),
        **_columns([record.call for record in records]),
    }
    for name in ("call", "usage", "receipt", *_NO_COLUMNS):
        del columns[name]
    columns |= _receipts(records)
    columns["day"] = [record_day(call_id) for call_id in columns["id"]]
    columns["recorded_ms"] = [recorded_ms] * len(records)
    columns["prices"] = [
        (text := record.receipt.rate or record.call.prices)
        and _prices_json(text, record.usage.counted)
        for record in records
    ]
    columns["billed_to"] = [charges[0].to if charges else None for charges in columns["charges"]]
    columns["charges"] = [charges_json(charges) for charges in columns["charges"]]
    columns["attempts"] = [_encode_json(attempts).decode() for attempts in columns["attempts"]]
    for name, default in SPARSE_COLUMNS.items():
        if columns[name].count(default) == len(records):
            del columns[name]
    return columns


def _columns(rows: Sequence[CallFacts | Usage | UsageRecord]) -> dict[str, Sequence[Any]]:
    return dict(zip(rows[0].__struct_fields__, zip(*map(astuple, rows), strict=True), strict=True))


def _receipts(records: Sequence[UsageRecord]) -> dict[str, Sequence[Any]]:
    """Return the columns for rare parts of records, or none if no record has any of them."""
    receipts = [
        _receipt_json(record) if record.usage.more or record.receipt != NO_RECEIPT else None
        for record in records
    ]
    if receipts.count(None) == len(receipts):
        return {}
    sums = [record.usage.more_tokens for record in records]
    return {"receipt": receipts, **dict(zip(MORE_TOKENS, zip(*sums, strict=True), strict=True))}


def _receipt_json(record: UsageRecord) -> str:
    """Return the text of the receipt column, an object without empty parts."""
    receipt, more = record.receipt, record.usage.more
    parts = [_service_json(receipt.rate, receipt.served)]  # names of meters need no escapes
    if more:
        counts = ",".join([f'"{name}":{count}' for name, count in more])
        parts.append(f'"meters":{{{counts}}}')
    if receipt.unpriced:
        unpriced = [_Unpriced(name, count) for name, count in receipt.unpriced]
        parts.append(f'"unpriced":{_encode_json(unpriced).decode()}')
    if receipt.other_models:
        models = [
            {"model": other.model, "tokens": other.usage.meters, "cost": other.cost}
            for other in receipt.other_models
        ]
        parts.append(f'"other_models":{_encode_json(models).decode()}')
    return f"{{{','.join(filter(None, parts))}}}"


class _Unpriced(msgspec.Struct, gc=False):
    meter: str
    count: int


@functools.lru_cache(maxsize=1024)
def _service_json(rate: str | None, served: Served) -> str:
    """Return the members `rate` and `served` of a receipt, if there are any."""
    when = dict(rate_of_text(rate).when) if rate else {}
    words = zip(Served.__struct_fields__, astuple(served), strict=True)
    fields = {"rate": when, "served": {name: word for name, word in words if word}}
    filled = {name: value for name, value in fields.items() if value}
    return _encode_json(filled).decode()[1:-1]


@functools.lru_cache(maxsize=1024)
def _prices_json(text: str, meters: tuple[str, ...]) -> str:
    try:
        return prices_json(rate_of_text(text), meters)
    except pricing.AmountError:  # stored as it is: `usage verify` names the record
        return text


def charges_json(charges: tuple[Charge, ...]) -> str:
    """Return the text of the charges column: a list of objects with `to` and `amount` (decimal)."""
    if len(charges) == 1 and charges[0].to == WALLET:  # the usual case: a third faster
        return f'[{{"to":"{WALLET}","amount":"{format_money(charges[0].amount_nanos)}"}}]'
    public = [_PublicCharge(charge.to, format_money(charge.amount_nanos)) for charge in charges]
    return _encode_json(public).decode()


def charges_from_json(text: str) -> tuple[Charge, ...]:
    """Parse a text of `charges_json`. Raises ValueError for anything else."""
    return tuple(Charge(entry.to, parse_money(entry.amount)) for entry in _decode_charges(text))


class _PublicCharge(msgspec.Struct, gc=False):
    to: str
    amount: str


_decode_charges = msgspec.json.Decoder(list[_PublicCharge]).decode


def to_public(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the public form of a row of usage_records (column name to value): FIELDS in order."""
    public: dict[str, Any] = {name: row.get(name) for name in FIELDS}
    public["started_at"] = rfc3339(row["started_ms"])
    public["recorded_at"] = rfc3339(row["recorded_ms"])
    public["stream"] = None if row["stream"] is None else bool(row["stream"])
    public["cost"] = format_money(row["cost_nanos"])
    public |= receipt_fields(row)
    if row.get("upstream_nanos") is not None:
        public["upstream_cost"] = format_money(row["upstream_nanos"])
    if row["multiplier_ppm"] is not None:
        public["multiplier"] = pricing.format_multiplier(row["multiplier_ppm"])
    for name in ("prices", "charges", "reported_usage"):
        if row[name] is not None:
            public[name] = msgspec.json.decode(row[name])
    if row["attempts"] is not None:
        public["attempts"] = [
            _public_attempt(attempt) for attempt in _decode_attempts(row["attempts"])
        ]
    return public


def receipt_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return `meters`, `rate`, `served`, `unpriced` and `other_models` of a row. `meters` has
    counts above 0, in the order of METERS."""
    receipt = msgspec.json.decode(row["receipt"]) if row.get("receipt") else {}
    counts = zip(SIDES, (row[name] for name in TOKEN_COUNTS), strict=True)
    meters = {name: int(count) for name, count in counts if count} | receipt.get("meters", {})
    return {
        "meters": {name: meters[name] for name in METERS if name in meters},
        "rate": receipt.get("rate", {}),
        "served": receipt.get("served", {}),
        "unpriced": receipt.get("unpriced", []),
        "other_models": receipt.get("other_models", []),
    }


_decode_attempts = msgspec.json.Decoder(list[AttemptRecord]).decode


def _public_attempt(attempt: AttemptRecord) -> dict[str, Any]:
    names = ("channel", "status", "error", "detail", "ms")
    public: dict[str, Any] = {name: getattr(attempt, name) for name in names}
    if attempt.dropped:
        public["dropped"] = list(attempt.dropped)
    return public


def rfc3339_or_none(at_ms: int | None) -> str | None:
    """Return a time as `rfc3339` does, or None."""
    return None if at_ms is None else rfc3339(at_ms)


def rfc3339(at_ms: int) -> str:
    """Return a time in milliseconds as RFC 3339 UTC with milliseconds."""
    seconds, ms = divmod(at_ms, 1000)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"


def csv_header() -> str:
    """Return the first line of the CSV form, with its line end."""
    return csv_row(FIELDS)


def csv_line(public: Mapping[str, Any]) -> str:
    """Return a public record as a line of CSV. Unknown values are empty, lists and objects are JSON
    text."""
    return csv_row(public[name] for name in FIELDS)


def csv_row(values: Iterable[Any]) -> str:
    """Return values as a line of CSV, with its line end."""
    line = io.StringIO()
    csv.writer(line).writerow(map(_csv_cell, values))
    return line.getvalue()


def _csv_cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return _encode_json(value).decode()
    return _csv_text(value) if isinstance(value, str) else value


# Includes full-width signs, which some spreadsheets read as the plain ones.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


_NUMBER = re.compile(r"-[0-9]+(\.[0-9]+)?", re.ASCII)


def _csv_text(text: str) -> str:
    """Return a text as a cell of CSV, escaped if a spreadsheet would run it as a formula. Amounts
    stay as they are."""
    formula = text.startswith(_FORMULA_STARTS) and not _NUMBER.fullmatch(text)
    return f"'{text}" if formula else text

"""One call: its table row, its record as a user may see it, and its page with its attempts on a
timeline.

An administrator sees the whole record. A member's record has no channel, upstream model, upstream
id, node or upstream cost; its attempts have no channel, and an error condition instead of the
upstream's message.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import peewee

from handlers.hub.web import formats
from handlers.hub.web.admin import path_of
from handlers.hub.web.base import Api, Page
from handlers.hub.web.formats import address
from handlers.hub.web.strings import strings
from store.calls.usage_queries import Filters, cost_lines, find
from store.calls.usage_stats import stats
from store.hub.sessions import SignedIn
from store.money import ledger, wallet
from store.values.errors import NotFound
from store.values.fields import Instant
from store.values.ids import DAY_MS, HOUR_MS, new_ulid, now_ms
from store.values.meters import count_in_unit
from store.values.pricing import format_money, format_multiplier, parse_money
from store.values.usage_record import (
    MONEY_CODES,
    WALLET,
    charges_from_json,
    receipt_fields,
    rfc3339,
    to_public,
)

AXIS_PARTS = 4
LANE_PX, TOP_PX = 36, 26
LATE_PERCENT = 55.0  # from here on, texts are left of their position
LONG_PERCENT = 75.0  # an attempt at least this long has its name at its start
NAME_CHARS = 22  # of a channel on the timeline
FLOW_UNITS = 1000  # the width of the flow line's drawing
STEP_UNITS = 28  # of FLOW_UNITS, for the step down to the next attempt

MEMBER_HIDDEN = ("channel", "upstream_model", "upstream_request_id", "node", "upstream_cost")
_MEMBER_ATTEMPT_FIELDS = ("status", "error", "ms", "dropped")
_ENGLISH = strings("en")

CONDITIONS: Mapping[str, str] = {
    **dict.fromkeys(("connect", "tls", "timeout_connect"), "upstream_unreachable"),
    **dict.fromkeys(("timeout_first_byte", "upstream_timeout"), "upstream_timeout"),
    **dict.fromkeys(("too_large", "protocol"), "upstream_invalid_response"),
    **dict.fromkeys(("truncated", "timeout_idle", "upstream_truncated"), "upstream_truncated"),
    "reset_before_head": "upstream_error",
    "ca_file": "channel_misconfigured",
}
"""The error condition in the client's error, by failure of a transfer."""

# ---- rows of tables ------------------------------------------------------------------------------

COLUMNS = (
    *("endpoint", "user", "key", "channel", "cost", "in", "cached", "out", "first", "total"),
    *("speed", "tries"),
)
"""The columns that can be hidden, in order. Time, result and model are always visible."""

EVERYBODY_COLUMNS = ("user", "channel")
TOKEN_COLUMNS = ("in", "cached", "out", "first")
"""Columns that a failed call's reason replaces."""


def visible_columns(hidden: list[str], *, everybody: bool) -> list[str]:
    """Return the columns that are not hidden."""
    return [
        name
        for name in COLUMNS
        if name not in hidden and (everybody or name not in EVERYBODY_COLUMNS)
    ]


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call as a table row."""

    row: Mapping[str, Any]
    words: Mapping[str, str]

    @property
    def failed(self) -> bool:
        """Return whether nothing was delivered, so that the reason replaces the tokens."""
        return self.row["outcome"] not in ("ok", "client_gone") and not self.output

    @property
    def upstreams_fault(self) -> bool:
        """Return whether the reason is emphasised."""
        return formats.is_upstream_fault(self.row["outcome"])

    @property
    def shape(self) -> str:
        """Return the shape of the result."""
        return formats.shape_of(self.row["outcome"])

    @property
    def result(self) -> str:
        """Return the text of the result."""
        return self.words["codes.outcome_" + self.row["outcome"]]

    @property
    def reason(self) -> str:
        """Return a short reason of the failure."""
        code, message = self.row["error_code"], self.row["error_message"]
        return formats.failure_reason(self.words, code, message) or ""

    @property
    def status(self) -> int | str:
        """Return the HTTP status that was sent."""
        return "–" if self.row["status"] is None else int(self.row["status"])

    @property
    def endpoint(self) -> str:
        """Return the path, shortened to its operation if it contains a model."""
        path = str(self.row["endpoint"])
        return "…:" + path.rpartition(":")[2] if "{model}:" in path else path

    @property
    def cost(self) -> str:
        """Return the cost as decimal text."""
        return format_money(self.row["cost_nanos"])

    @property
    def input(self) -> int:
        """Return the input tokens of all modalities that were not read from a cache."""
        return int(self.row["input_tokens"] + self.row["more_input_tokens"])

    @property
    def cached(self) -> int:
        """Return the input tokens of all modalities that were read from a cache."""
        return int(self.row["cache_read_tokens"] + self.row["more_cache_read_tokens"])

    @property
    def output(self) -> int:
        """Return the output tokens of all modalities, including reasoning."""
        own = self.row["output_tokens"] + self.row["reasoning_tokens"]
        return int(own + self.row["more_output_tokens"])

    @property
    def speed(self) -> int | None:
        """Return the tokens per second after the first byte. None: not a stream, or too short to
        tell."""
        first_ms, total_ms = self.row["ttft_ms"], self.row["duration_ms"]
        if not self.row["stream"] or first_ms is None or total_ms is None or not self.output:
            return None
        return round(self.output * 1000 / (total_ms - first_ms)) if total_ms > first_ms else None

    @property
    def tries(self) -> int:
        """Return the number of attempts."""
        return len(json.loads(self.row["attempts"] or "[]"))


# ---- attempts on a timeline ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttemptLane:
    """An attempt on the timeline. Positions are percentages of the whole. `label`: how it ended;
    `detail`: why it failed, empty if it did not or only its status is known."""

    name: str
    begin: float
    end: float
    shape: str
    label: str
    attempt: Mapping[str, Any]
    top: int
    detail: str

    @property
    def short_name(self) -> str:
        """Return the name, truncated to fit on the timeline."""
        return self.name if len(self.name) <= NAME_CHARS else self.name[: NAME_CHARS - 1] + "…"

    @property
    def long(self) -> bool:
        """Return whether the name fits at the lane's start and the label at its end."""
        return self.end - self.begin >= LONG_PERCENT


def attempt_details(row: Mapping[str, Any], words: Mapping[str, str]) -> list[str]:
    """Return why each attempt of a call failed, in a form that every user may see: the error
    condition, never the upstream's message. If the last attempt has no upstream condition, it has
    the message of the client's error. Empty for a successful attempt."""
    attempts = json.loads(row["attempts"] or "[]")
    errors = [attempt.get("error") for attempt in attempts]
    details = [_condition(words, error) for error in errors]
    if details and row["outcome"] != "ok" and errors[-1] == row["error_code"]:
        details[-1] = details[-1] or row["error_message"] or ""
    return [
        detail or formats.code_word(words, error) or ""
        for detail, error in zip(details, errors, strict=True)
    ]


def _condition(words: Mapping[str, str], error: str | None) -> str:
    return words.get(f"usage.tried_{CONDITIONS.get(error or '', error)}", "")


def attempt_lanes(
    row: Mapping[str, Any], words: Mapping[str, str], *, admin: bool
) -> list[AttemptLane]:
    """Return the attempts of a call. Members do not see the names of channels."""
    attempts = json.loads(row["attempts"] or "[]")
    whole_ms = max(row["duration_ms"] or 0, sum(attempt.get("ms", 0) for attempt in attempts), 1)
    details = attempt_details(row, words)
    lanes, at_ms = list[AttemptLane](), 0
    for number, (attempt, detail) in enumerate(zip(attempts, details, strict=True), 1):
        last = number == len(attempts)
        end_ms = whole_ms if last else min(at_ms + attempt.get("ms", 0), whole_ms)
        shape, label = _end_of(row, attempt, words, end_ms - at_ms)
        name = attempt["channel"] if admin else words["usage.attempt"].format(number=number)
        begin, end = 100 * at_ms / whole_ms, 100 * end_ms / whole_ms
        top = TOP_PX + (number - 1) * LANE_PX
        lanes.append(AttemptLane(name, begin, end, shape, label, attempt, top, detail))
        at_ms = end_ms
    return lanes


def _end_of(
    row: Mapping[str, Any], attempt: Mapping[str, Any], words: Mapping[str, str], duration_ms: int
) -> tuple[str, str]:
    """Return the shape and the label at the end of an attempt."""
    error, status = attempt.get("error"), attempt.get("status")
    condition = CONDITIONS.get(error or "", error)
    text = str(status) if status else formats.code_word(words, condition) or ""
    if error is None and row["outcome"] == "ok":
        return "ok", ", ".join(filter(None, (text, words["usage.complete"])))
    shape = "idle" if row["outcome"] == "client_gone" and error is None else "bad"
    if error is None:
        text = words["codes.outcome_" + row["outcome"]]
    return shape, words["usage.after"].format(what=text, seconds=f"{duration_ms / 1000:,.2f}")


def flow_path(lanes: Sequence[AttemptLane]) -> str:
    """Return the SVG path of the flow line, in FLOW_UNITS: along each attempt, then a step down to
    the next one."""
    parts = []
    for number, lane in enumerate(lanes):
        end = lane.end * FLOW_UNITS / 100
        if number == 0:
            parts.append(f"M0 {lane.top}")
        else:
            start, above = lane.begin * FLOW_UNITS / 100, lanes[number - 1].top
            step = min(STEP_UNITS, max(end - start, 0))
            near, far, landed = start + step / 2, start + step / 4, start + step
            parts.append(f"C{near:.1f} {above} {far:.1f} {lane.top} {landed:.1f} {lane.top}")
        parts.append(f"H{end:.1f}")
    return "".join(parts)


def time_axis(row: Mapping[str, Any]) -> list[tuple[float, str]]:
    """Return the axis labels: positions in percent with their seconds."""
    whole_ms = row["duration_ms"] or 0
    parts = range(AXIS_PARTS + 1)
    return [(100 * n / AXIS_PARTS, f"{whole_ms * n / AXIS_PARTS / 1000:,.2f}") for n in parts]


def public_record(row: Mapping[str, Any], *, admin: bool) -> dict[str, Any]:
    """Return the public form of a row. It has all fields; hidden ones are None."""
    record = to_public(row)
    if admin:
        return record
    record |= dict.fromkeys(MEMBER_HIDDEN)
    details = attempt_details(row, _ENGLISH)
    record["attempts"] = [
        {name: attempt[name] for name in _MEMBER_ATTEMPT_FIELDS if name in attempt}
        | {"detail": str(detail) or None}  # msgspec encodes no subclass of str
        for attempt, detail in zip(record["attempts"] or (), details, strict=True)
    ]
    return record


def find_call(db: peewee.Database, me: SignedIn, call_id: str) -> dict[str, Any]:
    """Return a call by its own id or its client's id; for administrators also by the vendor's id.
    Members only find their own calls. `refunds`: the ledger lines that refunded its cost. Raises
    NotFound."""
    for row in find(db, call_id):
        own = row["user_id"] == me.user_id and call_id in (row["id"], row["client_request_id"])
        if me.admin or own:
            return {**row, "refunds": list(map(ledger.to_public, wallet.refunds_of(db, row["id"])))}
    raise NotFound("there is no such call")


class CallApi(Api):
    """GET /api/usage/ID: a call with the lines of its cost and its refunds."""

    async def get(self, call_id: str) -> None:
        row = await self.store(find_call, self.me, call_id)
        record = public_record(row, admin=self.me.admin)
        self.answer({**record, "cost_lines": cost_lines(row), "refunds": row["refunds"]})


@dataclass(frozen=True, slots=True)
class CostLine:
    """A part of a cost, with numbers as text. `label`: a meter, or another model, then with its
    counts as `note`. `unit`: empty for the usual units. `unpriced`: there was no price, so the
    amount may be 0."""

    label: str
    count: str
    price: str | None
    amount: str
    unit: str = ""
    note: str = ""
    unpriced: bool = False


def cost_table(row: dict[str, Any], words: Mapping[str, str]) -> tuple[list[CostLine], str]:
    """Return the parts of a cost, including what had no price, and their sum."""
    parts, receipt = cost_lines(row), receipt_fields(row)
    decimals = max((len(part["amount"].partition(".")[2]) for part in parts), default=0)
    unpriced = {entry["meter"]: entry["count"] for entry in receipt["unpriced"]}
    others = iter(receipt["other_models"])
    lines = []
    for part in parts:
        amount, meter = f"{Decimal(part['amount']):.{decimals}f}", part["meter"]
        if meter is None:
            counts = _counts_in_words(words, next(others)["tokens"])
            count = formats.count(part["count"])
            lines.append(CostLine(part["model"], count, None, amount, note=counts))
            continue
        lines.append(
            CostLine(
                words[f"meter.{meter}"],
                f"{count_in_unit(meter, part['count']):,}",
                None if part["price"] == "0" and meter in unpriced else part["price"],
                amount,
                unit=formats.meter_unit(words, meter),
                unpriced=unpriced.pop(meter, 0) > 0,
            )
        )
    lines += [
        CostLine(_feature_word(words, name), formats.count(count), None, "0", unpriced=True)
        for name, count in unpriced.items()
    ]
    total = sum((Decimal(part["amount"]) for part in parts), Decimal(0))
    return lines, f"{total:.{decimals}f}"


def _counts_in_words(words: Mapping[str, str], counts: Mapping[str, int]) -> str:
    return ", ".join(f"{words['meter.' + name]} {count:,}" for name, count in counts.items())


def _feature_word(words: Mapping[str, str], name: str) -> str:
    """Return the text for something that had no price and no line of its own: a meter of another
    model, a condition of service, or a feature."""
    condition, _, value = name.partition(".")
    form = words.get(f"meter.when_{condition}") if value else words.get(f"meter.{name}")
    return form.format(value=value).capitalize() if form else name


def load_call(
    db: peewee.Database, me: SignedIn, call_id: str, at_ms: int
) -> tuple[dict[str, Any], int]:
    """Return a call, and the number of its user's calls with the same error in the last day. Raises
    NotFound."""
    row = find_call(db, me, call_id)
    if not row["error_code"]:
        return row, 0
    since_ms = (at_ms - DAY_MS) // HOUR_MS * HOUR_MS
    filters = Filters(user=row["user"], error_code=row["error_code"], since_ms=since_ms)
    return row, sum(int(sums["calls"]) for sums in stats(db, (), filters))


class CallPage(Page):
    """/usage/ID, also shown as a drawer over the list."""

    async def get(self, call_id: str) -> None:
        me, words = self.me, self.words
        at_ms = now_ms()
        row, similar = await self.store(load_call, me, call_id, at_ms)
        lines, total = cost_table(row, words)
        lanes = attempt_lanes(row, words, admin=me.admin)
        self.show(
            "usage/call.html",
            row=row,
            call=CallRow(row, words),
            lanes=lanes,
            axis=time_axis(row),
            flow=flow_path(lanes),
            height=TOP_PX + max(len(lanes), 1) * LANE_PX,
            FLOW_UNITS=FLOW_UNITS,
            LATE_PERCENT=LATE_PERCENT,
            admin=me.admin,
            place=path_of,
            cost_lines=lines,
            cost_sum=total,
            receipt=receipt_fields(row),
            multiplier=_multiplier(row),
            upstream_cost=_upstream_cost(row) if me.admin else None,
            call_margin=_margin_percent(row) if me.admin else None,
            charges=_charges(row),
            refunds=row["refunds"],
            refundable=_refundable(row),
            refund_id=new_ulid(),
            moment_ms=Instant().parse,
            others=similar,
            trace_link=_trace_link(row, admin=me.admin),
            others_link=_others_link(row, me),
            help_word=_help(row, words),
            of_money=row["error_code"] in MONEY_CODES and row["user"] == me.user,
            started=rfc3339(row["started_ms"]).replace("T", " ").replace("Z", " UTC"),
        )


def _others_link(row: Mapping[str, Any], me: SignedIn) -> str:
    fields = {"error_code": row["error_code"] or "", "since": "24h"}
    if row["user"] != me.user:
        fields |= {"of": "all", "user": row["user"]}
    return address("/usage", **fields)


def _trace_link(row: Mapping[str, Any], *, admin: bool) -> str:
    """Return the URL of the trace's calls within an hour of this one. The time is bounded because
    no index covers traces."""
    begin_ms, end_ms = (row["started_ms"] + ms for ms in (-HOUR_MS, HOUR_MS))
    times = {"since": rfc3339(begin_ms), "until": rfc3339(end_ms)}
    of = "all" if admin else ""
    return address("/usage", of=of, trace_id=row["trace_id"] or "", **times)


def _multiplier(row: Mapping[str, Any]) -> str:
    return "1" if row["multiplier_ppm"] is None else format_multiplier(row["multiplier_ppm"])


def _upstream_cost(row: Mapping[str, Any]) -> str | None:
    nanos = row["upstream_nanos"]
    return None if nanos is None else format_money(nanos)


def _margin_percent(row: Mapping[str, Any]) -> float | None:
    """Return the operator's share of the cost in percent. None: unknown, or no cost."""
    cost_nanos, upstream_nanos = row["cost_nanos"], row["upstream_nanos"]
    if upstream_nanos is None or not cost_nanos:
        return None
    return float(100 * (cost_nanos - upstream_nanos) / cost_nanos)


def _charges(row: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    charges = charges_from_json(row["charges"])
    return [(charge.to, format_money(charge.amount_nanos)) for charge in charges]


def _refundable(row: Mapping[str, Any]) -> str:
    """Return what the wallet paid and was not refunded, as decimal text. Empty: nothing."""
    charges = charges_from_json(row["charges"])
    paid = sum(charge.amount_nanos for charge in charges if charge.to == WALLET)
    left = paid - sum(parse_money(line["amount"]) for line in row["refunds"])
    return format_money(left) if left > 0 else ""


def _help(row: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """Return the advice for the error code or, without one, for the outcome."""
    if row["outcome"] == "ok":
        return ""
    ends = {"refused": "do_refused", "client_gone": "do_client_gone"}
    general = words["usage." + ends.get(row["outcome"], "do_failed")]
    return words.get(f"usage.do_{row['error_code']}", general)

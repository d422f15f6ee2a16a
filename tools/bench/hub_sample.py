"""A store as after a month of use: eight keys, fourteen models, calls that failed in many ways.

    python -m tools.bench.hub_sample --config DIR/gateway.toml --vendor http://127.0.0.1:9999

For pictures of the Hub's pages, and for looking at them. The books are right: `usage verify` and
`books verify` find no fault. `init` creates `DIR`; a scripted vendor at --vendor answers tests of
channels.
"""

import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import peewee

from commands.edits import editor
from commands.store_access import opened_store
from store.admin.document import parse
from store.alerts import destinations, outbox, rules
from store.alerts.rules import GATEWAY, OWNER
from store.calls import booking
from store.channels import status_sums
from store.db.database import raw_rows, transaction
from store.db.tables.money import LedgerLine, Subscription
from store.db.tables.users import ApiKey, User
from store.money.accounts import quota_at
from store.values.cipher import Cipher
from store.values.fields import Instant
from store.values.ids import DAY_MS, HOUR_MS, ulid
from store.values.pricing import Rate, cost_nanos, parse_money, plain_rate
from store.values.usage import Usage
from store.values.usage_record import AttemptRecord, CallFacts, Charge, UsageRecord

PASSWORD = "to look around"
DAYS = 30
CALLS_A_DAY = 3_200
BATCH_ROWS = 400
SEED = 7
PROBLEM_MS = 3 * HOUR_MS  # the age of the problems of some vendors
PPM = 1_000_000
PLAN, WINDOW, QUOTA_NANOS = "monthly", "month", 20 * 10**9

# name: input, output, cache read, share of the calls, family, channels
MODELS: dict[str, tuple[str, str, str, int, str, tuple[str, ...]]] = {
    "claude-sonnet-4-5": ("3", "15", "0.30", 24, "messages", ("anthropic-main", "anthropic-eu")),
    "claude-haiku-4-5": ("1", "5", "0.10", 8, "messages", ("anthropic-main",)),
    "claude-opus-4-1": ("15", "75", "1.50", 2, "messages", ("anthropic-main",)),
    "gpt-5": ("1.25", "10", "0.125", 6, "responses", ("openai-main",)),
    "gpt-5-codex": ("1.25", "10", "0.125", 9, "responses", ("openai-main",)),
    "gpt-5-mini": ("0.25", "2", "0.025", 22, "chat_completions", ("openai-chat",)),
    "gpt-4.1": ("2", "8", "0.50", 6, "chat_completions", ("openai-chat",)),
    "gpt-4.1-mini": ("0.40", "1.60", "0.10", 3, "chat_completions", ("openai-chat",)),
    "gemini-2.5-pro": ("1.25", "10", "0.31", 3, "generate_content", ("gemini-main",)),
    "gemini-2.5-flash": ("0.30", "2.50", "0.075", 6, "generate_content", ("gemini-main",)),
    "deepseek-chat": ("0.28", "0.42", "0.028", 8, "chat_completions", ("deepseek",)),
    "qwen3-coder-plus": ("1", "5", "0.10", 3, "chat_completions", ("qwen",)),
    "kimi-k2": ("0.60", "2.50", "0.15", 2, "chat_completions", ("moonshot",)),
    "qwen3-32b-local": ("0", "0", "0", 1, "chat_completions", ("local-vllm",)),
}
# context, longest answer, rates
CATALOGUED: dict[str, tuple[int, int, list[dict[str, Any]]]] = {
    "claude-haiku-4-5": (200_000, 64_000, []),
    "claude-opus-4-1": (200_000, 32_000, []),
    "claude-sonnet-4-5": (
        *(1_000_000, 64_000),
        [{"when": {"input_over": 200_000}, "input": "6", "output": "22.5"}],
    ),
    "deepseek-chat": (131_072, 8_192, []),
    "gemini-2.5-flash": (1_048_576, 65_536, []),
    "gemini-2.5-pro": (1_048_576, 65_536, []),
    "gpt-5": (
        *(400_000, 128_000),
        [
            {"when": {"tier": "flex"}, "factor": "0.5"},
            {"when": {"tier": "priority"}, "factor": "2"},
        ],
    ),
    "gpt-5-mini": (400_000, 128_000, [{"when": {"tier": "flex"}, "factor": "0.5"}]),
    "kimi-k2": (262_144, 16_384, []),
}
# the operator's cost as a part of the list price; other channels have none
COST_FACTORS = {
    **{"anthropic-main": "0.65", "anthropic-eu": "0.72", "openai-main": "0.7"},
    **{"openai-chat": "0.62", "gemini-main": "0.6", "deepseek": "0.74", "moonshot": "0.85"},
}
DEMO_MODELS = {
    "chat_completions": "demo-chat",
    "responses": "demo-responses",
    "messages": "demo-messages",
    "generate_content": "demo-generate",
}
ENDPOINTS = {
    "chat_completions": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "generate_content": "/v1beta/models/{model}:streamGenerateContent",
}
GROUPS: dict[str, tuple[str, list[str]]] = {
    "default": ("1", ["*"]),
    "coding": ("0.8", [name for name in MODELS if not name.startswith("gemini-2.5-pro")]),
    "batch": ("0.5", ["gpt-5", "gpt-5-mini", "gpt-4.1-mini", "deepseek-chat", "kimi-k2"]),
}
# name: group, models, networks, limit, client, address, share of the calls
KEYS: dict[str, tuple[str, list[str], list[str], str | None, str, str, int]] = {
    "laptop": ("coding", [], [], None, "claude-cli/2.1.197 (external, cli)", "192.0.2.14", 40),
    "ci": (
        *("coding", ["gpt-5-mini", "gpt-4.1-mini"], ["203.0.113.0/24"], "20"),
        *("OpenAI/Python 3.52.0", "203.0.113.40", 30),
    ),
    "editor": ("default", [], [], None, "Anthropic/Python 2.11.0", "192.0.2.14", 14),
    "nightly": ("batch", ["deepseek-chat", "gpt-5"], [], "60", "curl/8.14.1", "10.20.4.9", 12),
    "notebook": ("default", [], [], "300", "google-genai-sdk/3.4.0", "192.0.2.77", 6),
    "tablet": ("default", [], [], None, "", "", 0),
}

# share of 10,000 calls, outcome, status, code, message, the vendor's own message
FAULTS = (
    (36, "upstream_error", 429, "upstream_rate_limited", "All channels for model '{model}' are "
     "rate limited. Try again in 38s.", "This request would exceed the rate limit of 2,000,000 "
     "input tokens per minute."),
    (20, "upstream_error", 502, "upstream_invalid_response", "The upstream sent an unreadable "
     "answer.", "200 with text/html: <title>Just a moment</title>"),
    (14, "upstream_error", 503, "upstream_overloaded", "The upstream is overloaded.", "Overloaded"),
    (8, "timeout", 504, "upstream_timeout", "The upstream did not answer in time.",
     "no first byte within 600 s"),
    (8, "upstream_truncated", 200, "upstream_truncated", "The upstream's stream ended without an "
     "end.", "the stream ended without a finish reason"),
    (60, "refused", 404, "model_not_found", "Model '{model}' is not available to this API key. "
     "Check the name and the channel status.", None),
    (40, "refused", 429, "rate_limit_exceeded", "Rate limit reached: 60 requests per minute. Try "
     "again in 3s.", None),
    (50, "client_gone", 200, "client_gone", "The client disconnected.", None),
)  # fmt: skip
MISSED_NAMES = ("claude-3.5-sonnet-latest", "gpt-4.1-2025-04-14", "gemini-2.5-pro")


@dataclass(frozen=True, slots=True)
class Caller:
    """A key that makes calls."""

    key_id: str
    name: str
    group: str
    models: tuple[str, ...]
    agent: str
    address: str
    limited: bool


def document(vendor: str, starts_at: str) -> dict[str, list[dict[str, Any]]]:
    """Return the document for `apply`."""
    channels: dict[str, dict[str, Any]] = {}
    for model, (_, _, _, _, family, names) in MODELS.items():
        for name in names:
            channel = channels.setdefault(
                name,
                {
                    "name": name,
                    "vendor": "demo",
                    "family": family,
                    "base_url": vendor,
                    "keys": [f"sk-{name}-4f2A", f"sk-{name}-9KqB"],
                    "groups": list(GROUPS),
                    "models": {},
                    "priority": 5 if name.endswith("-eu") else 10,
                    **({"cost_factor": COST_FACTORS[name]} if name in COST_FACTORS else {}),
                },
            )
            channel["models"][model] = DEMO_MODELS[family]
    channels["local-vllm"]["enabled"] = False
    return {
        "model": [
            {"name": name, "price": {"input": i, "output": o, "cache_read": c}, **_catalogued(name)}
            for name, (i, o, c, *_) in MODELS.items()
        ],
        "group": [
            {"name": name, "multiplier": multiplier, "models": models}
            for name, (multiplier, models) in GROUPS.items()
        ],
        "channel": list(channels.values()),
        "plan": [{"name": PLAN, "quota": "20", "window": WINDOW, "days": 90}],
        "user": [
            {
                "name": "alice",
                "balance": "330",
                "password": PASSWORD,
                "groups": list(GROUPS),
            },
            {"name": "admin", "role": "admin", "password": PASSWORD},
        ],
        "subscription": [{"user": "alice", "plan": PLAN, "starts_at": starts_at}],
        "key": [
            {
                "user": "alice",
                "name": name,
                "group": group,
                "models": models,
                "networks": networks,
                **({"limit": limit, "limit_window": WINDOW} if limit else {}),
                **({"enabled": False} if not calls else {}),
            }
            for name, (group, models, networks, limit, _, _, calls) in KEYS.items()
        ],
    }


class Purse:
    """The payers of calls: a plan's monthly quota, then the wallet."""

    def __init__(self, subscription_id: str) -> None:
        self._id, self._left = subscription_id, defaultdict[str, int](lambda: QUOTA_NANOS)

    def charges(self, nanos: int, at_ms: int) -> tuple[Charge, ...]:
        """Return the charges of an amount at a time."""
        account, _ = quota_at(self._id, WINDOW, at_ms)
        by_plan = min(nanos, self._left[account])
        self._left[account] -= by_plan
        parts = Charge(f"subscription:{PLAN}", by_plan, account), Charge("wallet", nanos - by_plan)
        return tuple(part for part in parts if part.amount_nanos)


def callers(db: peewee.Database) -> tuple[str, list[Caller], list[int]]:
    """Return the user's id, the keys that make calls, and the share of each in the calls."""
    [(user_id,)] = raw_rows(db, User.select(User.id).where(User.name == "alice"))
    ids = dict(raw_rows(db, ApiKey.select(ApiKey.name, ApiKey.id)))
    found, shares = [], []
    for name, (group, models, _, limit, agent, address, calls) in KEYS.items():
        if calls:
            offered = models or [
                m for m in MODELS if GROUPS[group][1] == ["*"] or m in GROUPS[group][1]
            ]
            found.append(
                Caller(ids[name], name, group, tuple(offered), agent, address, limit is not None)
            )
            shares.append(calls)
    return user_id, found, shares


def records(db: peewee.Database, end_ms: int) -> Iterator[UsageRecord]:
    """Yield the calls of the last DAYS days, in order of their start, with fewer of them at
    night."""
    chance = random.Random(SEED)
    user_id, keys, shares = callers(db)
    [(subscription_id,)] = raw_rows(db, Subscription.select(Subscription.id))
    purse = Purse(subscription_id)
    begin_ms = end_ms - DAYS * DAY_MS
    for number in range(DAYS * 24):
        hour_ms = begin_ms + number * HOUR_MS
        hour = hour_ms // HOUR_MS % 24
        busy = 0.08 + max(0.0, math.sin((hour - 6) / 24 * 2 * math.pi)) * 1.6
        calls = int(CALLS_A_DAY / 24 * busy * chance.uniform(0.8, 1.2))
        for at_ms in sorted(hour_ms + chance.randrange(HOUR_MS) for _ in range(calls)):
            caller = chance.choices(keys, shares)[0]
            made = _record(chance, at_ms, user_id, caller, end_ms)
            made.charges = purse.charges(made.cost_nanos, at_ms)
            yield made


def _record(
    chance: random.Random, at_ms: int, user_id: str, caller: Caller, end_ms: int
) -> UsageRecord:
    weights = [MODELS[name][3] for name in caller.models]
    model = chance.choices(caller.models, weights)[0]
    fault = _fault(chance, model, end_ms - at_ms)
    if fault and fault[3] == "model_not_found":
        model = chance.choice(MISSED_NAMES)
    family = MODELS[model][4] if model in MODELS else "messages"
    multiplier_ppm = int(float(GROUPS[caller.group][0]) * PPM)
    prices = _prices(model)
    made = UsageRecord(
        id=ulid(at_ms, chance.randbytes(10)),
        call=CallFacts(
            started_ms=at_ms,
            user_id=user_id,
            user="alice",
            key_id=caller.key_id,
            key_name=caller.name,
            group=caller.group,
            endpoint=ENDPOINTS[family],
            family=family,
            model=model,
            stream=chance.random() < 0.8,
            prices=prices.text,
            multiplier_ppm=multiplier_ppm,
            client_ip=caller.address,
            user_agent=caller.agent,
            limit_account=quota_at(caller.key_id, WINDOW, at_ms)[0] if caller.limited else None,
        ),
        status=200,
        node="node-a",
        duration_ms=chance.randrange(1, 9),
    )
    if fault and fault[1] == "refused":
        return _failed(made, fault, model)
    _relay(made, chance, model, family)
    if fault and fault[1] != "client_gone":
        return _failed(made, fault, model)
    if fault:
        made.outcome, made.error_code, made.error_message = "client_gone", fault[3], fault[4]
    _charge(made, chance, prices, multiplier_ppm)
    return made


def _fault(chance: random.Random, model: str, age_ms: int) -> tuple[Any, ...] | None:
    """Return the fault of this call, or None. Faults are more frequent lately, at the vendors that
    have problems."""
    if age_ms < PROBLEM_MS and model == "qwen3-coder-plus":
        return FAULTS[1]
    if age_ms < PROBLEM_MS and model == "gpt-5-codex" and chance.random() < 0.3:
        return FAULTS[0]
    drawn = chance.randrange(10_000)
    for fault in FAULTS:
        drawn -= fault[0]
        if drawn < 0:
            return fault
    return None


def _relay(made: UsageRecord, chance: random.Random, model: str, family: str) -> None:
    """Let the call reach its channel, sometimes only at the second try."""
    names = MODELS[model][5] if model in MODELS else ("anthropic-main",)
    made.upstream_family, made.upstream_model = family, f"{model}-2026-01-15"
    made.ttft_ms = int(min(chance.lognormvariate(6.4, 0.6), 20_000))
    tries = []
    if len(names) > 1 and chance.random() < 0.05:
        detail = "This request would exceed the rate limit of 2,000,000 input tokens per minute."
        tries.append(AttemptRecord(names[0], 429, "upstream_rate_limited", 310, detail))
        made.channel = names[1]
    else:
        made.channel = names[0]
    tries.append(AttemptRecord(made.channel, 200, None, made.ttft_ms))
    made.attempts = tuple(tries)
    made.upstream_request_id = f"req_{chance.randbytes(9).hex()}"


def _catalogued(name: str) -> dict[str, Any]:
    """Return the bounds and rates that the sample has for a model."""
    if name not in CATALOGUED:
        return {}
    context_tokens, max_output_tokens, rates = CATALOGUED[name]
    bounds = {"context_tokens": context_tokens, "max_output_tokens": max_output_tokens}
    return {**bounds, "rate": rates, "price_source": "catalogue 2026-11-14"}


def _charge(made: UsageRecord, chance: random.Random, prices: Rate, multiplier_ppm: int) -> None:
    """Set tokens, times and cost of an answered call."""
    read = int(chance.lognormvariate(7.4, 0.9))
    output = int(min(chance.lognormvariate(5.9, 1.0), 9_000))
    cached = made.call.family in ("messages", "responses") and chance.random() < 0.7
    made.usage = Usage(read, output, int(chance.lognormvariate(9.2, 1.1)) if cached else 0)
    made.duration_ms = (made.ttft_ms or 0) + output * chance.randrange(7, 24)
    made.usage_source = "reported"
    made.cost_nanos = cost_nanos(made.usage, prices, multiplier_ppm)
    if factor := COST_FACTORS.get(made.channel or ""):
        made.upstream_nanos = cost_nanos(made.usage, prices, int(float(factor) * PPM))


def _failed(made: UsageRecord, fault: tuple[Any, ...], model: str) -> UsageRecord:
    _, made.outcome, made.status, made.error_code, message, detail = fault
    made.error_message = message.format(model=model)
    if made.attempts:
        last = made.attempts[-1]
        code = None if made.outcome == "upstream_truncated" else made.error_code
        told = AttemptRecord(last.channel, made.status, code or "truncated", last.ms, detail)
        made.attempts = (*made.attempts[:-1], told)
        made.duration_ms = 600_000 if made.outcome == "timeout" else last.ms + 300
        made.ttft_ms = None if made.status != 200 else made.ttft_ms
    return made


def _prices(model: str) -> Rate:
    if model not in MODELS:
        return plain_rate({"input": 0, "output": 0})
    names = ("input", "output", "cache_read")
    return plain_rate(dict(zip(names, map(parse_money, MODELS[model][:3]), strict=True)))


def fill(db: peewee.Database, end_ms: int) -> int:
    """Book the calls, as the writer does. Return their number."""
    batch: list[UsageRecord] = []
    booked = 0

    def book() -> None:
        transaction(db, lambda: booking.apply_records(db, batch, batch[-1].call.started_ms + 900))

    for record in records(db, end_ms):
        batch.append(record)
        if len(batch) == BATCH_ROWS:
            book()
            booked += len(batch)
            batch = []
    if batch:
        book()
    while status_sums.fold(db, end_ms // 1000):
        pass
    _open_early(db, end_ms - (DAYS + 1) * DAY_MS)
    return booked + len(batch)


def _open_early(db: peewee.Database, at_ms: int) -> None:
    """Make the wallet's first line and the keys older than the calls."""
    opening = LedgerLine.update(at_ms=at_ms).where(LedgerLine.kind == "credit")
    keys = ApiKey.update(created_ms=at_ms)
    transaction(db, lambda: (opening.execute(db), keys.execute(db)))


PLACES = (
    ("ops", "webhook", "https://hooks.example.com/sluice"),
    ("#llm-gateway", "slack", "https://hooks.slack.com/services/T02ABC/B7KDEF/secret"),
    ("平台值班", "feishu", "https://open.feishu.cn/open-apis/bot/v2/hook/secret"),
)
RULES = (
    ("channel_down", {"minutes": 2}, (0,)),
    ("errors", {"percent": 40}, (0, 1)),
    ("balance", {"below": "0.001"}, ()),
    ("key", {}, ()),
    ("spending", {"of": "gateway", "above": "2000"}, (0,)),
    ("unpriced", {}, (1,)),
    ("upstream_key", {}, (0, 2)),
)
MESSAGES = (  # hours ago, kind, state, text, destination
    (120, "upstream_key", "firing", "An upstream key of openai-main was suspended, 401", 2),
    (119, "upstream_key", "over", "Over: an upstream key of openai-main was suspended", 2),
    (30, "unpriced", "firing", "gpt-4.1: web_search is used without a price", 1),
    (5, "channel_down", "firing", "Channel openai-main is down since 09:32 UTC", 0),
    (4, "channel_down", "over", "Over: Channel openai-main is down since 09:32 UTC", 0),
    (2, "errors", "firing", "openai-main: 32 of 78 calls failed in 10 minutes, 41.0%", 1),
)


def fill_alerts(db: peewee.Database, cipher: Cipher, end_ms: int) -> None:
    """Create rules of the gateway that do not fire now, and the messages that they have sent."""
    ids = []
    for name, kind, address in PLACES:
        fields = {"name": name, "kind": kind, "address": address}
        ids.append(destinations.create(db, GATEWAY, fields, cipher, "admin")[0])
        destinations.note_result(db, ids[-1], "200", 180, ok=True)
    for kind, settings, places in RULES:
        to = [ids[place] for place in places] + ([OWNER] if kind in ("key", "balance") else [])
        rules.create(db, GATEWAY, {"kind": kind, "settings": settings, "destinations": to}, "admin")
    for hours, kind, state, text, place in MESSAGES:
        row = {"rule_id": "", "kind": kind, "state": state, "object": {}, "text": text}
        row |= {"owner_id": GATEWAY, "destination_id": ids[place], "receiver": PLACES[place][0]}
        row |= {"user_id": "", "link": "/alerts", "since_ms": end_ms, "status": outbox.SENT}
        at_ms = end_ms - hours * HOUR_MS
        transaction(db, partial(outbox.add, db, {**row, "tries": 1, "took_ms": 210}, at_ms))


@click.command()
@click.option("--config", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--vendor", required=True, help="Base URL of the scripted vendor.")
def main(config: Path, vendor: str) -> None:
    """Fill the store of a configuration."""
    end_ms = time.time_ns() // 1_000_000
    with opened_store(config) as access:
        starts_at = Instant().plain(end_ms - (DAYS + 1) * DAY_MS)
        wanted = json.dumps(document(vendor, starts_at))
        editor(access).apply(parse(wanted, {}, config.parent))
        begun = time.monotonic()
        booked = fill(access.db, end_ms)
        fill_alerts(access.db, Cipher(access.secrets().cipher_keys), end_ms)
    click.echo(f"{booked} calls in {time.monotonic() - begun:.1f} s; sign in: alice, {PASSWORD}")


if __name__ == "__main__":
    main()

"""Conditions: the objects for which each kind of rule fires now, from roll-ups, quotas and status.

A condition reads and changes nothing. It returns at most MAX_OBJECTS. For windowed kinds (kinds.py)
an object counts for the window that it names.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import peewee
from peewee import fn

from store.alerts import kinds
from store.alerts.rules import GATEWAY, Rule
from store.alerts.samples import Attempts
from store.catalog.suspended_keys import load_suspended_keys
from store.channels import status
from store.db import nodes
from store.db.database import portions, select_rows
from store.db.partitions import sums_of_callers
from store.db.tables.catalog import Channel
from store.db.tables.money import LedgerLine, Wallet
from store.db.tables.system import UpkeepRow
from store.db.tables.usage import JournalRow, UsageByKey, UsageByRate
from store.db.tables.users import ApiKey, User
from store.money.accounts import quota_at
from store.money.quota import current_use
from store.values.ids import DAY_MS, HOUR_MS, day_at
from store.values.pricing import format_money, parse_money
from store.values.texts import segment
from store.values.times import window_at
from store.values.usage_record import MONEY_CODES

MAX_OBJECTS = 500  # as many as one statement takes
SILENT_MS = 7 * DAY_MS
"""A node that has been silent for longer was removed."""
BACKLOG_BYTES = 16 * 1024 * 1024
STORE_GAP_MS = 180_000
"""If there was no round for this long, no process has reached the store."""


@dataclass(frozen=True, slots=True)
class Fact:
    """An object for which a rule fires. `owner_id`: the user that it belongs to. If `window` is
    empty, it fires until the condition ends."""

    object: Mapping[str, str]
    text: str
    since_ms: int
    link: str
    owner_id: str = ""
    window: str = ""


def _may_run_out() -> Any:
    """Return the condition for users who pay from a wallet that had money. A wallet that never had
    any cannot run out."""
    lines = LedgerLine.select(LedgerLine.id).where(LedgerLine.user_id == User.id)
    return (User.spend_order != "plan_only") & fn.EXISTS(lines)


LimitedKey = tuple[str, str, int, str, str, str]
"""Id, name, limit and its window, id and name of the user."""


class SharedFacts:
    """The facts that rules of many users share. Each is read once a round, when the first rule
    needs it, since every member may have such rules."""

    def __init__(self, db: peewee.Database, rules: Iterable[Rule], at_ms: int) -> None:
        self._db, self._at_ms = db, at_ms
        self._owners: defaultdict[str, list[str]] = defaultdict(list)
        for rule in rules:
            self._owners[rule.kind].append(rule.owner_id)

    @functools.cached_property
    def refused(self) -> dict[str, int]:
        """Return the users whose calls were recently refused for money, and since which hour."""
        return _refused_since(self._db, self._at_ms)

    @functools.cached_property
    def balances(self) -> dict[str, tuple[str, int, bool]]:
        """Return, for the owners of rules by id, name, balance, and whether the balance may run
        out."""
        query = User.select(User.id, User.name, Wallet.balance, _may_run_out())
        query = query.join(Wallet, on=(Wallet.user_id == User.id))
        owners = sorted({*self._owners[kinds.BALANCE]} - {GATEWAY})
        return {
            user_id: (name, balance, bool(ends))
            for ids in portions(owners)
            for user_id, name, balance, ends in select_rows(self._db, query.where(User.id << ids))
        }

    @functools.cached_property
    def keys(self) -> dict[str, list[tuple[LimitedKey, int]]]:
        """Return keys with a limit by the id of their user, each with the spending in its
        window."""
        columns = (ApiKey.id, ApiKey.name, ApiKey.limit_nanos, ApiKey.limit_window)
        limited = ApiKey.limit_nanos.is_null(False) & ApiKey.revoked_ms.is_null()
        query = ApiKey.select(*columns, User.id, User.name).where(limited).order_by(ApiKey.id)
        query = query.join(User, on=(User.id == ApiKey.user_id))
        owners = sorted(set(self._owners[kinds.KEY]))
        queries = [query.where(User.id << ids) for ids in portions(owners)]
        rows = [
            row
            for chosen in ([query] if GATEWAY in owners else queries)
            for row in select_rows(self._db, chosen)
        ]
        uses = current_use(self._db, {row[0]: row[3] for row in rows}, self._at_ms)
        by_user: defaultdict[str, list[tuple[LimitedKey, int]]] = defaultdict(list)
        for row in rows:
            by_user[row[4]].append((row, uses[row[0]].spent_nanos))
        return dict(by_user)


@dataclass(frozen=True, slots=True)
class Scope:
    """The facts of a round: its time, the end of the previous round (None: there was none), the
    currency, attempts of channels by the length of their span in minutes, and the facts shared by
    rules (None: not read yet)."""

    at_ms: int
    currency: str = "USD"
    last_round_ms: int | None = None
    attempts: Mapping[int, Mapping[str, Attempts]] = field(default_factory=dict)
    shared: SharedFacts | None = None


def clock(at_ms: int) -> str:
    """Return a time in the format of messages."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M UTC")


def _page(rule: Rule, user: str) -> str:
    """Return the page about a user, for that user or for administrators."""
    return kinds.OWN_PAGES[rule.kind] if rule.owner_id else f"/admin/users/{segment(user)}"


def _money(nanos: int, scope: Scope, decimals: int = 4) -> str:
    if abs(nanos) < 10 ** (9 - decimals):  # it would be rounded to 0
        return f"{format_money(nanos)} {scope.currency}"
    return f"{nanos / 10**9:.{decimals}f} {scope.currency}"


# ---- balance -------------------------------------------------------------------------------------


def _balance(db: peewee.Database, rule: Rule, scope: Scope) -> Iterator[Fact]:
    below, names = parse_money(rule.settings["below"]), rule.settings["names"]
    assert scope.shared is not None
    refused = scope.shared.refused
    for user_id, name, balance in (
        _own_balance(scope.shared, rule.owner_id, below)
        if rule.owner_id
        else _low_balances(db, names, below, refused)
    ):
        if not kinds.listed(names, name):
            continue
        since_ms = refused.get(name)
        text = f"{name}: {_money(balance, scope)} left"
        text += "" if since_ms is None else ", calls are refused"
        link = _page(rule, name)
        yield Fact({"user": name}, text, since_ms or scope.at_ms, link, user_id)


def _own_balance(shared: SharedFacts, user_id: str, below: int) -> Iterator[tuple[str, str, int]]:
    if user_id in shared.balances:
        name, balance, may_end = shared.balances[user_id]
        if (balance < below and may_end) or name in shared.refused:
            yield user_id, name, balance


def _low_balances(
    db: peewee.Database, names: Sequence[str], below: int, refused: Collection[str]
) -> list[tuple[str, str, int]]:
    columns = (User.id, User.name, Wallet.balance)
    low = (Wallet.balance < below) & _may_run_out()
    fires = low | (User.name << list(refused)[:MAX_OBJECTS])
    enabled = User.disabled == False  # noqa: E712 - SQL
    query = User.select(*columns).join(Wallet, on=(Wallet.user_id == User.id))
    query = query.where(enabled & fires)
    if names:
        query = query.where(User.name << names)
    return select_rows(db, query.order_by(User.name).limit(MAX_OBJECTS))


def _refused_since(db: peewee.Database, at_ms: int) -> dict[str, int]:
    """Return the users whose calls were refused for money in this hour or the previous one, and
    since which hour."""
    hours = [at_ms // HOUR_MS * HOUR_MS - back * HOUR_MS for back in (1, 0)]
    since: dict[str, int] = {}
    for begin_ms in hours:
        of_hour = (UsageByKey.day == day_at(begin_ms)) & (
            UsageByKey.hour == begin_ms // HOUR_MS % 24
        )
        terms = of_hour & (UsageByKey.error_code << MONEY_CODES)
        for (name,) in select_rows(db, UsageByKey.select(UsageByKey.user).where(terms).distinct()):
            since.setdefault(name, begin_ms)
    return since


# ---- keys and spending ---------------------------------------------------------------------------


def _key(db: peewee.Database, rule: Rule, scope: Scope) -> Iterator[Fact]:
    assert scope.shared is not None
    by_user, sent = scope.shared.keys, 0
    own = by_user.get(rule.owner_id, []) if rule.owner_id else chain.from_iterable(by_user.values())
    for (key_id, name, limit, window, user_id, user), spent in own:
        levels = [level for level in kinds.KEY_LEVELS if spent * 100 >= limit * level]
        if not levels or sent == MAX_OBJECTS:
            continue
        sent += 1
        # The text of the account, since a limit's window may never end.
        begins = quota_at(key_id, window, scope.at_ms)[0].partition(":")[2]
        of = {"key": f"{user}/{name}", "percent": str(levels[-1])}
        text = f"Key {name} of {user} has used {_money(spent, scope, 2)} of"
        text += f" {_money(limit, scope, 2)}"
        link = _page(rule, user)
        yield Fact(of, text, scope.at_ms, link, user_id, begins)


_SPANS = {"day": "today", "month": "this month"}


def _spending(db: peewee.Database, rule: Rule, scope: Scope) -> Iterator[Fact]:
    above, of = parse_money(rule.settings["above"]), rule.settings["of"]
    window = rule.settings["window"]
    first_day, _ = window_at(window, scope.at_ms)
    sums = sums_of_callers(db, first_day)
    cost = fn.SUM(sums.cost_nanos)
    own = sums.day >= first_day
    if rule.owner_id:
        own &= sums.user << User.select(User.name).where(User.id == rule.owner_id)
    if of not in kinds.SPENDERS:
        rows = [("", row[0] or 0) for row in select_rows(db, sums.select(cost).where(own))]
    else:
        column = getattr(sums, kinds.SPENDERS[of])
        query = sums.select(column, cost).where(own).group_by(column).having(cost > above)
        rows = select_rows(db, query.order_by(cost.desc()).limit(MAX_OBJECTS))
    people = _owners(db, of, [name for name, _ in rows])
    for name, nanos in rows:
        owner_id, label = people.get(name, ("", name))
        if int(nanos) <= above or not kinds.listed(rule.settings["names"], label):
            continue
        subject = {"gateway": "The gateway", "group": f"Group {label}", "key": f"Key {label}"}
        text = f"{subject.get(of, label)} has spent {_money(int(nanos), scope, 2)} {_SPANS[window]}"
        link = _page(rule, label) if of == "user" else "/usage"
        of_whom = {of: label} if label else {"gateway": "all calls"}
        yield Fact(of_whom, text, scope.at_ms, link, owner_id, str(first_day))


def _owners(db: peewee.Database, of: str, names: list[str]) -> dict[str, tuple[str, str]]:
    """Return the user's id and the display name of users by name or keys by id."""
    people: dict[str, tuple[str, str]] = {}
    for portion in portions(names) if of in ("user", "key") else ():
        if of == "user":
            for user_id, name in select_rows(
                db, User.select(User.id, User.name).where(User.name << list(portion))
            ):
                people[name] = (user_id, name)
            continue
        query = ApiKey.select(ApiKey.id, ApiKey.name, User.id, User.name)
        query = query.join(User, on=(User.id == ApiKey.user_id))
        for key_id, key, user_id, user in select_rows(db, query.where(ApiKey.id << list(portion))):
            people[key_id] = (user_id, f"{user}/{key}")
    return people


def _unpriced(db: peewee.Database, rule: Rule, scope: Scope) -> Iterator[Fact]:
    today = day_at(scope.at_ms)
    used = (UsageByRate.day == today) & (UsageByRate.meter != "")
    query = UsageByRate.select(UsageByRate.model, UsageByRate.meter).where(used).distinct()
    for model, meter in select_rows(db, query.limit(MAX_OBJECTS)):
        text = f"{model}: {meter} is used without a price"
        link = f"/admin/models/{segment(model)}"
        yield Fact({"model": model, "use": meter}, text, scope.at_ms, link, window=str(today))


# ---- channels ------------------------------------------------------------------------------------


def _channel_down(db: peewee.Database, rule: Rule, scope: Scope) -> Iterator[Fact]:
    states = {status.DOWN} | ({status.DEGRADED} if rule.settings["state"] == "degraded" else set())
    by_channel: defaultdict[str, list[status.Status]] = defaultdict(list)
    for item in status.of_channels(db, scope.at_ms, figures=False):
        if item.state != status.DISABLED and kinds.listed(rule.settings["names"], item.name):
            by_channel[item.name].append(item)
    for name, statuses in by_channel.items():
        bad = [item for item in statuses if item.state in states]
        worst = status.worst(bad)
        if worst is None:
            continue
        same = [item for item in bad if item.state == worst.state]
        since_ms = min(item.since_ms or scope.at_ms for item in same)
        if scope.at_ms - since_ms < rule.settings["minutes"] * 60_000:
            continue
        models = "" if len(same) == len(statuses) else " for " + _few([item.model for item in same])
        text = f"Channel {name} has been {worst.state}{models} since {clock(since_ms)}"
        yield Fact({"channel": name}, text, since_ms, f"/admin/channels/{segment(name)}")


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _errors(db: peewee.Database, rule: Rule, scope: Scope) -> Iterator[Fact]:
    settings = rule.settings
    for name, counted in scope.attempts.get(settings["minutes"], {}).items():
        share = counted.failed / counted.calls if counted.calls else 0.0
        enough = counted.calls >= settings["calls"] and share * 100 > settings["percent"]
        if enough and kinds.listed(settings["names"], name):
            text = f"{name}: {counted.failed} of {counted.calls} calls failed in"
            text += f" {settings['minutes']} minutes, {share:.1%}"
            link = f"/admin/channels/{segment(name)}"
            yield Fact({"channel": name}, text, scope.at_ms, link)


def _upstream_key(db: peewee.Database, rule: Rule, scope: Scope) -> Iterator[Fact]:
    suspended = load_suspended_keys(db).values()
    names = dict(select_rows(db, Channel.select(Channel.id, Channel.name))) if suspended else {}
    for key in suspended:
        name = names.get(key.channel_id)
        if name is None or not kinds.listed(rule.settings["names"], name):
            continue
        mark = key.fingerprint[:8]
        text = f"{name}: upstream key {mark or 'of the channel'} was suspended, {key.reason}"
        link = f"/admin/channels/{segment(name)}"
        yield Fact({"channel": name, "upstream_key": mark}, text, key.since_ms, link)


# ---- the installation ----------------------------------------------------------------------------


def _trouble(db: peewee.Database, rule: Rule, scope: Scope) -> Iterator[Fact]:
    link = "/admin/system"
    left = JournalRow.select(JournalRow.node).where(JournalRow.finished_ms.is_null()).distinct()
    unfinished = {row[0] for row in select_rows(db, left)}
    for node in nodes.states(db):
        of = {"node": node.name}
        if not node.alive and node.name in unfinished and scope.at_ms - node.seen_ms < SILENT_MS:
            text = f"Node {node.name} has been silent since {clock(node.seen_ms)}"
            yield Fact(of, text, node.seen_ms, link)
        elif node.processes and not node.ready and node.not_ready != ["draining"]:
            text = f"Node {node.name} takes no calls: {', '.join(node.not_ready)}"
            yield Fact(of, text, scope.at_ms, link)
        if node.backlog_bytes > BACKLOG_BYTES:
            mib = node.backlog_bytes // 2**20
            text = f"Journal of node {node.name}: {mib} MiB are not in the store yet"
            yield Fact({"journal": node.name}, text, scope.at_ms, link)
    query = UpkeepRow.select(UpkeepRow.trouble).where(UpkeepRow.name == "upkeep")
    for (reason,) in select_rows(db, query):
        if reason:
            text = f"Upkeep of the store failed: {reason[:200]}"
            yield Fact({"store": "upkeep"}, text, scope.at_ms, link)
    last_ms = scope.last_round_ms
    if last_ms is not None and scope.at_ms - last_ms > STORE_GAP_MS:
        text = f"No node reached the store from {clock(last_ms)} to {clock(scope.at_ms)}"
        yield Fact({"store": "away"}, text, last_ms, link, window=str(last_ms))


Condition = Callable[[peewee.Database, Rule, Scope], Iterable[Fact]]
CONDITIONS: Mapping[str, Condition] = {
    kinds.BALANCE: _balance,
    kinds.KEY: _key,
    kinds.CHANNEL_DOWN: _channel_down,
    kinds.ERRORS: _errors,
    kinds.SPENDING: _spending,
    kinds.UNPRICED: _unpriced,
    kinds.UPSTREAM_KEY: _upstream_key,
    kinds.TROUBLE: _trouble,
}


def facts_of(db: peewee.Database, rule: Rule, scope: Scope) -> list[Fact]:
    """Return the objects for which a rule fires now, in a scope with the shared facts. Raises
    StoreError."""
    return list(CONDITIONS[rule.kind](db, rule, scope))

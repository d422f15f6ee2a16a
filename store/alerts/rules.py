"""Rules of the gateway and of users: creating, changing, removing and listing them.

An owner is a user's id, or GATEWAY, whose rules all administrators share.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import peewee
from peewee import fn

from store.alerts import kinds
from store.db import audit, versions
from store.db.database import database_ms, in_snapshot, in_transaction, select_rows
from store.db.tables.alerts import AlertDestination, AlertRule, AlertState
from store.db.tables.users import User
from store.values.errors import NotFound, Refused
from store.values.ids import new_ulid
from store.values.usage_record import rfc3339, rfc3339_or_none

GATEWAY = ""
OWNER = "owner"
"""The destination for mail to the owner of the firing object."""

MAX_RULES = 100
MAX_OWN_RULES = 20
MAX_DESTINATIONS = 10  # of one rule
FIELDS = ("kind", "settings", "destinations", "again_minutes", "enabled")
KIND = "alert rule"  # in the audit log
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Firing:
    """An object for which a rule fires: since when, and the text that was sent."""

    object: str
    since_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. `destinations` are ids, or OWNER."""

    id: str
    owner_id: str
    kind: str
    settings: Mapping[str, Any]
    destinations: Sequence[str]
    again_ms: int
    disabled: bool
    changed_ms: int
    changed_by: str
    fired_ms: int | None
    firings: Sequence[Firing] = field(default=())

    @property
    def state(self) -> str:
        """Return off, firing or armed."""
        return "off" if self.disabled else "firing" if self.firings else "armed"


_COLUMNS = (
    *(AlertRule.id, AlertRule.owner_id, AlertRule.kind, AlertRule.settings),
    *(AlertRule.destinations, AlertRule.again_ms, AlertRule.disabled, AlertRule.changed_ms),
    *(AlertRule.changed_by, AlertRule.fired_ms),
)


@in_snapshot
def listed(db: peewee.Database, owner_id: str) -> list[Rule]:
    """Return the rules of an owner: the firing ones, then the armed ones, then those that are
    off."""
    rows = select_rows(db, AlertRule.select(*_COLUMNS).where(AlertRule.owner_id == owner_id))
    fires = _firings(db, [row[0] for row in rows])
    loaded = [replace(Rule(*row), firings=tuple(fires[row[0]])) for row in rows]
    order = ("firing", "armed", "off")
    return sorted(loaded, key=lambda rule: (order.index(rule.state), rule.id))


def show(db: peewee.Database, owner_id: str, rule_id: str) -> Rule:
    """Return one rule of an owner. Raises NotFound."""
    own = (AlertRule.id == rule_id) & (AlertRule.owner_id == owner_id)
    rows = select_rows(db, AlertRule.select(*_COLUMNS).where(own))
    if not rows:
        raise NotFound(f"there is no rule {rule_id!r}")
    return replace(Rule(*rows[0]), firings=tuple(_firings(db, [rule_id])[rule_id]))


def version_of(db: peewee.Database, rule_id: str) -> str:
    """Return the version of a rule."""
    return versions.version_of(db, KIND, rule_id)


def enabled(db: peewee.Database) -> list[Rule]:
    """Return all active rules, without their firings: of the gateway, and of users who are not
    disabled."""
    users = User.select(User.id).where(User.disabled == False)  # noqa: E712 - SQL
    living = (AlertRule.owner_id == GATEWAY) | AlertRule.owner_id.in_(users)
    query = AlertRule.select(*_COLUMNS).where(living, AlertRule.disabled == False)  # noqa: E712
    return [Rule(*row) for row in select_rows(db, query.order_by(AlertRule.id))]


def firing(db: peewee.Database) -> set[str]:
    """Return the ids of the firing rules."""
    fires = AlertState.firing == True  # noqa: E712 - SQL
    query = AlertState.select(AlertState.rule_id).where(fires).distinct()
    return {rule_id for (rule_id,) in select_rows(db, query)}


def _firings(db: peewee.Database, ids: Sequence[str]) -> dict[str, list[Firing]]:
    columns = (AlertState.rule_id, AlertState.object, AlertState.since_ms, AlertState.text)
    fires = (AlertState.rule_id << list(ids)) & (AlertState.firing == True)  # noqa: E712 - SQL
    query = AlertState.select(*columns).where(fires).order_by(AlertState.since_ms)
    firings: defaultdict[str, list[Firing]] = defaultdict(list)
    for rule_id, *row in select_rows(db, query):
        firings[rule_id].append(Firing(*row))
    return firings


@in_transaction
def create(db: peewee.Database, owner_id: str, fields: Mapping[str, Any], actor: str) -> str:
    """Create a rule from FIELDS. Return its id. Raises Refused."""
    counted = AlertRule.select(fn.COUNT(AlertRule.id)).where(AlertRule.owner_id == owner_id)
    most = MAX_OWN_RULES if owner_id else MAX_RULES
    if select_rows(db, counted)[0][0] >= most:
        raise Refused([f"there are {most} rules, the maximum"])
    columns = _columns(db, owner_id, {"settings": {}, "destinations": [], **fields})
    rule_id = new_ulid()
    at_ms = database_ms(db)
    row = {"id": rule_id, "owner_id": owner_id, "created_ms": at_ms, "changed_ms": at_ms}
    AlertRule.insert({**row, "changed_by": actor, **columns}).execute(db)
    audit.write(db, audit.Act(actor, "create", KIND, rule_id, after=fields))
    return rule_id


@in_transaction
def change(
    db: peewee.Database,
    owner_id: str,
    rule_id: str,
    fields: Mapping[str, Any],
    actor: str,
    *,
    version: str | None = None,
) -> None:
    """Change these FIELDS of a rule. It then fires anew for objects that meet the condition.
    `version`: the version to change (None: any). Raises NotFound, Refused, Outdated."""
    rule = show(db, owner_id, rule_id)
    before = {name: value for name, value in public(rule).items() if name in FIELDS}
    merged = {**before, **fields}
    if fields.get("kind", rule.kind) != rule.kind:
        merged["settings"] = fields.get("settings", {})
    columns = _columns(db, owner_id, merged)
    after = {name: value for name, value in _fields_of(columns).items() if name in fields}
    if version is not None:
        mine = {name: value for name, value in after.items() if value != before[name]}
        versions.require(db, (KIND, rule_id), version, before, mine)
    update = {**columns, "changed_ms": database_ms(db), "changed_by": actor}
    AlertRule.update(update).where(AlertRule.id == rule_id).execute(db)
    if columns["disabled"] or "settings" in fields or "kind" in fields:
        AlertState.delete().where(AlertState.rule_id == rule_id).execute(db)
    audit.write(db, audit.Act(actor, "update", KIND, rule_id, before, after))


@in_transaction
def remove(db: peewee.Database, owner_id: str, rule_id: str, actor: str) -> None:
    """Remove a rule. Its messages stay. Raises NotFound."""
    before = public(show(db, owner_id, rule_id))
    AlertRule.delete().where(AlertRule.id == rule_id).execute(db)
    AlertState.delete().where(AlertState.rule_id == rule_id).execute(db)
    fields = {name: before[name] for name in FIELDS}
    audit.write(db, audit.Act(actor, "remove", KIND, rule_id, fields))


def _columns(db: peewee.Database, owner_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    faults: dict[str, str] = {}
    for name in fields.keys() - set(FIELDS):
        faults[name] = f"unknown field: {name}"
    settings, on = fields.get("settings", {}), fields.get("enabled", True)
    if not isinstance(settings, Mapping):
        faults["settings"] = "settings must be an object"
    if not isinstance(on, bool):
        faults["enabled"] = "enabled must be true or false"
    destinations = _destinations(db, owner_id, fields.get("destinations", []), faults)
    again = fields.get("again_minutes", kinds.AGAIN_MINUTES)
    whole = isinstance(again, int) and not isinstance(again, bool)
    if not whole or not 0 <= again <= kinds.MAX_AGAIN_MINUTES:
        most = kinds.MAX_AGAIN_MINUTES
        faults["again_minutes"] = f"again_minutes must be a whole number from 0 to {most}"
    if faults:
        raise Refused(list(faults.values()), list(faults))
    kind = str(fields.get("kind", ""))
    return {
        "kind": kind,
        "settings": kinds.checked(kind, settings, own=bool(owner_id)),
        "destinations": destinations,
        "again_ms": again * MINUTE_MS,
        "disabled": not on,
    }


def _fields_of(columns: Mapping[str, Any]) -> dict[str, Any]:
    again_minutes, on = columns["again_ms"] // MINUTE_MS, not columns["disabled"]
    values = (columns["kind"], columns["settings"], columns["destinations"], again_minutes, on)
    return dict(zip(FIELDS, values, strict=True))


def _destinations(
    db: peewee.Database, owner_id: str, ids: Any, faults: dict[str, str]
) -> list[str]:
    if not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
        faults["destinations"] = 'destinations must be a list of ids, or "owner"'
        return []
    names: list[str] = list(dict.fromkeys(map(str, ids)))
    query = AlertDestination.select(AlertDestination.id)
    own = {row[0] for row in select_rows(db, query.where(AlertDestination.owner_id == owner_id))}
    if missing := [item for item in names if item != OWNER and item not in own]:
        faults["destinations"] = f"there is no destination {missing[0]!r}"
    elif len(names) > MAX_DESTINATIONS:
        faults["destinations"] = f"at most {MAX_DESTINATIONS} destinations"
    return names


def public(rule: Rule) -> dict[str, Any]:
    """Return a rule as JSON. Times are RFC 3339."""
    return {
        "id": rule.id,
        "kind": rule.kind,
        "settings": dict(rule.settings),
        "destinations": list(rule.destinations),
        "again_minutes": rule.again_ms // MINUTE_MS,
        "enabled": not rule.disabled,
        "state": rule.state,
        "firing": [
            {"object": item.object, "since": rfc3339(item.since_ms), "text": item.text}
            for item in rule.firings
        ],
        "fired_at": rfc3339_or_none(rule.fired_ms),
        "changed_at": rfc3339(rule.changed_ms),
        "changed_by": rule.changed_by,
    }

"""The outbox: messages that wait to be sent, and those that were sent.

A message is a row, created in the transaction that notes the firing. A process claims it before
sending. If that process dies, the claim expires after CLAIM_MS, and the message may be sent twice,
with the same id. There are three tries in a quarter of an hour.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import peewee
from peewee import fn

from store.alerts import destinations, rules
from store.db.database import database_ms, first_row, in_snapshot, in_transaction, select_rows
from store.db.tables.alerts import AlertMessage as Row
from store.db.tables.users import User
from store.values.errors import NotFound, Refused
from store.values.ids import DAY_MS, new_ulid
from store.values.usage_record import rfc3339

WAITING, SENT, FAILED, NOT_SENT = "waiting", "sent", "failed", "not_sent"
FIRING, OVER, TEST = "firing", "over", "test"

CLAIM_MS = 60_000
RETRY_MS = (120_000, 600_000)
"""The time before the second and the third try, which is the last."""
KEEP_MS = 90 * DAY_MS
MAX_WAITING, MAX_OWN_WAITING = 10_000, 100
"""In all, and for the rules and tests of one user."""
MAX_RESULT_CHARS = 200


@dataclass(frozen=True, slots=True)
class Message:
    """A message. If `destination_id` is empty, it is mail to the user `user_id`. `result` is that
    of the last try."""

    id: str
    owner_id: str
    rule_id: str
    kind: str
    state: str
    since_ms: int
    made_ms: int
    object: Mapping[str, str]
    text: str
    link: str
    destination_id: str
    user_id: str
    receiver: str
    status: str
    tries: int
    result: str
    took_ms: int | None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a try. Neither `ok` nor `again`: further tries would fail, too."""

    ok: bool
    text: str = ""
    took_ms: int | None = None
    again: bool = True


_COLUMNS = tuple(getattr(Row, name) for name in Message.__slots__)


def room(db: peewee.Database, owner_id: str) -> int:
    """Return how many more messages of an owner may be added."""
    counted = Row.select(fn.COUNT(Row.id)).where(Row.status == WAITING)
    left = MAX_WAITING - select_rows(db, counted)[0][0]
    if owner_id:
        left = min(left, MAX_OWN_WAITING - count(db, owner_id, WAITING))
    return int(max(0, left))


def require_room(db: peewee.Database, owner_id: str, messages: int) -> None:
    """Raise Refused if too many messages wait. For messages that a user requests."""
    if room(db, owner_id) < messages:
        raise Refused(["too many messages wait to be sent; try again later"])


def add(db: peewee.Database, message: Mapping[str, Any], at_ms: int) -> str:
    """Add a message to be sent now, in the caller's transaction. Return its id."""
    message_id = new_ulid()
    row = {"id": message_id, "made_ms": at_ms, "next_ms": at_ms, "status": WAITING}
    Row.insert({**row, **message}).execute(db)
    return message_id


@in_transaction
def claim(db: peewee.Database, owner: str, passed_by: Collection[str] = ()) -> Message | None:
    """Claim the next due message for a process. Return None if none is due. The gateway's come
    before those of users. `passed_by`: destinations to skip. Raises StoreUnavailable."""
    at_ms = database_ms(db)
    free = (Row.status == WAITING) & (Row.next_ms <= at_ms) & (Row.claimed_ms < at_ms - CLAIM_MS)
    due = free & Row.destination_id.not_in(list(passed_by)) if passed_by else free
    of_user = Row.owner_id != rules.GATEWAY
    row = first_row(db, Row.select(*_COLUMNS).where(due).order_by(of_user, Row.next_ms, Row.id))
    if row is None:
        return None
    claimed = Row.update(claim=owner, claimed_ms=at_ms).where(free, Row.id == row[0])
    return Message(*row) if claimed.execute(db) else None


@in_transaction
def finish(db: peewee.Database, message: Message, owner: str, result: Result) -> None:
    """Note the result of a try of a message that this process claimed. Does nothing if another
    process has the claim now."""
    at_ms, tries = database_ms(db), message.tries + 1
    status, next_ms = SENT, at_ms
    if not result.ok:
        last = not result.again or tries > len(RETRY_MS)
        status = (FAILED if result.again else NOT_SENT) if last else WAITING
        next_ms = at_ms if last else at_ms + RETRY_MS[tries - 1]
    update = Row.update(
        status=status,
        tries=tries,
        next_ms=next_ms,
        claim="",
        claimed_ms=0,
        result=result.text[:MAX_RESULT_CHARS],
        took_ms=result.took_ms,
    )
    update.where(Row.id == message.id, Row.claim == owner, Row.status == WAITING).execute(db)
    if message.destination_id:
        place, took_ms = message.destination_id, result.took_ms
        destinations.note_result(db, place, result.text, took_ms, ok=result.ok)


@in_snapshot
def mail_of(db: peewee.Database, user_id: str) -> str | None:
    """Return the mail address of a user, or None if there is none or no such user."""
    row = first_row(db, User.select(User.mail).where(User.id == user_id))
    return row[0] if row else None


def listed(
    db: peewee.Database, owner_id: str, limit: int, before: str = "", status: str = ""
) -> list[Message]:
    """Return messages of an owner, the newest first. `before`: the id of a message; only older
    ones."""
    query = Row.select(*_COLUMNS).where(Row.owner_id == owner_id)
    if before:
        query = query.where(Row.id < before)
    if status:
        query = query.where(Row.status == status)
    return [Message(*row) for row in select_rows(db, query.order_by(Row.id.desc()).limit(limit))]


def count(db: peewee.Database, owner_id: str, status: str = "") -> int:
    """Return the number of messages of an owner that are stored, of one status or all."""
    query = Row.select(fn.COUNT(Row.id)).where(Row.owner_id == owner_id)
    return int(select_rows(db, query.where(Row.status == status) if status else query)[0][0])


@in_transaction
def send_again(db: peewee.Database, owner_id: str, message_id: str) -> None:
    """Put a message of an owner back into the outbox, with its old id. Does nothing if it still
    waits. Raises NotFound, Refused."""
    own = (Row.id == message_id) & (Row.owner_id == owner_id)
    row = first_row(db, Row.select(Row.status).where(own))
    if row is None:
        raise NotFound(f"there is no message {message_id!r}")
    if row[0] == WAITING:
        return
    require_room(db, owner_id, 1)
    update = Row.update(status=WAITING, tries=0, next_ms=database_ms(db), claimed_ms=0, result="")
    update.where(own).execute(db)


def receivers(
    db: peewee.Database, owner_id: str, ids: Sequence[str], user_id: str
) -> list[dict[str, str]]:
    """Return the columns of the receivers of a rule's message. `user_id` is the owner of the firing
    object, to whom mail for "owner" goes; empty: there is none."""
    rows = []
    names = {item.id: item.name for item in destinations.listed(db, owner_id)}
    for item in ids:
        if item in names:
            rows.append({"destination_id": item, "user_id": "", "receiver": names[item]})
        elif item == "owner" and user_id:
            name = first_row(db, User.select(User.name).where(User.id == user_id))
            receiver = name[0] if name else ""
            rows.append({"destination_id": "", "user_id": user_id, "receiver": receiver})
    return rows


def public(message: Message) -> dict[str, Any]:
    """Return a message as JSON."""
    return {
        "id": message.id,
        "at": rfc3339(message.made_ms),
        "rule": message.kind,
        "rule_id": message.rule_id,
        "state": message.state,
        "since": rfc3339(message.since_ms),
        "object": dict(message.object),
        "text": message.text,
        "link": message.link,
        "to": message.receiver,
        "by_mail": not message.destination_id,
        "status": message.status,
        "tries": message.tries,
        "result": message.result or None,
        "took_ms": message.took_ms,
    }

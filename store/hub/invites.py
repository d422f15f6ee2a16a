"""Links that can be used once. The holder of an invite creates a user with the role, groups and
balance that an administrator has chosen. The holder of a reset sets a new password for one user.

A token is shown once, when its link is created; only a digest is stored. `use_up` is the first step
of the transaction that uses the link, so that only one of its holders succeeds.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import peewee

from store.db import audit, changes
from store.db.database import database_ms, in_transaction, select_rows, transaction
from store.db.tables.catalog import Group
from store.db.tables.hub import Invite
from store.db.tables.users import User
from store.hub.membership import user_id_of
from store.hub.sessions import digest_of
from store.values.errors import NotFound, Refused
from store.values.ids import DAY_MS, new_ulid
from store.values.pricing import format_money
from store.values.texts import nearest
from store.values.usage_record import rfc3339, rfc3339_or_none

TOKEN_BYTES = 32
INVITE_MS, RESET_MS = 7 * DAY_MS, DAY_MS
KEEP_MS = 30 * DAY_MS  # after its last day; the audit log still has who created and used it
PATH = "/join/"
MAX_LISTED = 500
WAITING, USED, EXPIRED, WITHDRAWN = "waiting", "used", "expired", "withdrawn"
ROLES = ("member", "admin")


@dataclass(frozen=True, slots=True)
class InviteTerms:
    """The user that an invite creates."""

    role: str = "member"
    groups: Sequence[str] = ()
    balance_nanos: int = 0


@dataclass(frozen=True, slots=True)
class OpenLink:
    """A link. `user`: whose password it sets; None: it creates a user with `terms`."""

    id: str
    user: str | None
    terms: InviteTerms
    created_ms: int
    created_by: str
    until_ms: int
    state: str = WAITING
    used_by: str | None = None


@dataclass(frozen=True, slots=True)
class NewLink:
    """A newly created link and its token, which is not stored."""

    link: OpenLink
    token: str = field(repr=False)

    @property
    def path(self) -> str:
        """Return the path that opens the link."""
        return PATH + self.token


@in_transaction
def invite(db: peewee.Database, terms: InviteTerms, actor: str) -> NewLink:
    """Create an invite. Raises Refused if there is no such role or group."""
    if terms.role not in ROLES:
        raise Refused([f"role must be one of {', '.join(ROLES)}"], ["role"])
    names = [name for (name,) in select_rows(db, Group.select(Group.name))]
    for name in terms.groups:
        if name not in names:
            raise Refused([f'there is no group "{name}"{nearest(name, names)}'], ["groups"])
    return _make(db, terms, None, actor)


@in_transaction
def reset(db: peewee.Database, user: str, actor: str) -> NewLink:
    """Create a link for a new password of a user. Earlier ones end. Raises NotFound."""
    changes.lock(db)
    user_id = user_id_of(db, user)
    at_ms = database_ms(db)
    Invite.update(withdrawn_ms=at_ms).where(
        Invite.user_id == user_id, Invite.used_ms.is_null(), Invite.withdrawn_ms.is_null()
    ).execute(db)
    return _make(db, InviteTerms(), user, actor, user_id)


def _make(
    db: peewee.Database, terms: InviteTerms, user: str | None, actor: str, user_id: str = ""
) -> NewLink:
    token, at_ms = secrets.token_urlsafe(TOKEN_BYTES), database_ms(db)
    until_ms = at_ms + (INVITE_MS if user is None else RESET_MS)
    link = OpenLink(new_ulid(), user, terms, at_ms, actor, until_ms)
    row: dict[str, Any] = {"id": link.id, "digest": digest_of(token), "user_id": user_id or None}
    row |= {"role": terms.role, "groups": list(terms.groups), "balance": terms.balance_nanos}
    row |= {"created_ms": at_ms, "created_by": actor, "until_ms": until_ms}
    Invite.insert(row).execute(db)
    audit.write(db, audit.Act(actor, "create", *_named(link), after=_after(link)))
    return NewLink(link, token)


def _named(link: OpenLink) -> tuple[str, str]:
    """Return the kind and the name of a link in the audit log."""
    return ("invite", link.id) if link.user is None else ("reset", link.user)


def _after(link: OpenLink) -> dict[str, Any]:
    if link.user is not None:
        return {"until": rfc3339(link.until_ms)}
    return {
        "role": link.terms.role,
        "groups": list(link.terms.groups),
        "balance": format_money(link.terms.balance_nanos),
        "until": rfc3339(link.until_ms),
    }


def find(db: peewee.Database, token: str) -> OpenLink | None:
    """Return the link of a token that can be used now, or None."""
    links = _read(db, Invite.digest == digest_of(token))
    return links[0] if links and links[0].state == WAITING else None


def listed(db: peewee.Database) -> list[OpenLink]:
    """Return the invites, the newest first, at most MAX_LISTED."""
    return _read(db, Invite.user_id.is_null())


@in_transaction
def withdraw(db: peewee.Database, link_id: str, actor: str) -> None:
    """End a link that was not used. Raises NotFound, and Refused if it can no longer be used."""
    changes.lock(db)
    links = _read(db, Invite.id == link_id)
    if not links:
        raise NotFound(f'there is no invite "{link_id}"')
    if links[0].state != WAITING:
        raise Refused([f"the invite is {links[0].state}"])
    Invite.update(withdrawn_ms=database_ms(db)).where(Invite.id == link_id).execute(db)
    audit.write(db, audit.Act(actor, "remove", *_named(links[0])))


def use_up(db: peewee.Database, token: str, user: str) -> None:
    """End a link in the name of its user, inside the transaction that uses it. Raises NotFound if
    the token is not valid."""
    changes.lock(db)
    link = find(db, token)
    if link is None:
        raise NotFound("this link is no longer valid")
    Invite.update(used_ms=database_ms(db), used_by=user).where(Invite.id == link.id).execute(db)
    audit.write(db, audit.Act(user, "use", *_named(link), after={"user": user}))


def forget_old(db: peewee.Database, at_ms: int) -> None:
    """Remove the links, used or not, whose last day is KEEP_MS ago."""
    query = Invite.delete().where(Invite.until_ms <= at_ms - KEEP_MS)
    transaction(db, lambda: query.execute(db))


def _read(db: peewee.Database, condition: Any) -> list[OpenLink]:
    maker = User.alias()
    columns = (
        *(Invite.id, User.name, Invite.user_id, Invite.role, Invite.groups, Invite.balance),
        *(Invite.created_ms, Invite.created_by, Invite.until_ms),
        *(Invite.used_ms, Invite.used_by, Invite.withdrawn_ms, maker.role, maker.disabled),
    )
    query = (
        Invite.select(*columns)
        .join(User, peewee.JOIN.LEFT_OUTER, on=(User.id == Invite.user_id))
        .switch(Invite)
        .join(maker, peewee.JOIN.LEFT_OUTER, on=(maker.name == Invite.created_by))
    )
    at_ms = database_ms(db)
    links = []
    newest_first = query.where(condition).order_by(Invite.id.desc()).limit(MAX_LISTED)
    for link_id, user, user_id, role, groups, balance, *rest in select_rows(db, newest_first):
        created_ms, created_by, until_ms, used_ms, used_by, withdrawn_ms, *made_by = rest
        state = WAITING
        if used_ms is not None:
            state = USED
        elif withdrawn_ms is not None or (user_id is not None and user is None):
            state = WITHDRAWN  # so is the link of a removed user
        elif made_by != ["admin", False]:
            state = WITHDRAWN  # a link does not grant what its creator could no longer grant
        elif until_ms <= at_ms:
            state = EXPIRED
        terms = InviteTerms(role, tuple(groups), int(balance))
        times = (created_ms, created_by, until_ms, state, used_by)
        links.append(OpenLink(link_id, user, terms, *times))
    return links


def public(link: OpenLink) -> dict[str, Any]:
    """Return a link as JSON."""
    return {
        "id": link.id,
        "user": link.user,
        "role": link.terms.role,
        "groups": list(link.terms.groups),
        "balance": format_money(link.terms.balance_nanos),
        "created_at": rfc3339(link.created_ms),
        "created_by": link.created_by,
        "expires_at": rfc3339_or_none(link.until_ms),
        "state": link.state,
        "used_by": link.used_by,
    }

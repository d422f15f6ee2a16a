"""Wallets as commands see them: show, credit, debit, refund, ledger; explicit transactions.

Leases keep what gateways have borrowed of a wallet. The cost of calls is charged by the writer's
bookings. Codes that are worth money are in codes. Every movement is a ledger line with the balance
after it, written under the row lock of the wallet.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import peewee

from store.db import audit
from store.db.database import database_ms, first_row, in_snapshot, is_mysql, raw_rows, transaction
from store.db.tables.money import LedgerLine, Wallet
from store.db.tables.usage import UsageRow
from store.db.tables.users import User
from store.money import leases
from store.money.ledger import CHARGES, Line, add_line, find_line, lines_of, lines_with_id
from store.values import errors
from store.values.errors import Conflict, NotFound, OutcomeUnknown, Refused, StoreUnavailable
from store.values.ids import day_of, new_ulid
from store.values.pricing import MAX_BIGINT, format_money
from store.values.usage_record import WALLET, charges_from_json

CREDIT = "credit"
DEBIT = "debit"
REFUND = "refund"
REDEEM = "redeem"

OWN_IDS = tuple(f"{kind}:" for kind in (CHARGES, REFUND, REDEEM))
"""The prefixes of the gateway's own idempotency ids, which callers may not use."""

Result = TypeVar("Result")

ID_LIMIT_CHARS = 128
REASON_LIMIT_CHARS = 1000
COMMIT_ATTEMPTS = 3
COMMIT_PAUSE_S = 0.3
RECALL_WAIT_S = 2.0
RECALL_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class View:
    """A wallet: its balance, the part that running calls hold, the part lent to processes."""

    user: str
    balance_nanos: int
    held_nanos: int
    leased_nanos: int


@dataclass(frozen=True, slots=True)
class Owner:
    """A user with a wallet: id and name."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class _Locked:
    """A wallet under its row lock, and the time of its next line. That is later than the last line,
    so that ordering lines by time also orders their balances."""

    balance_nanos: int
    leased_nanos: int
    at_ms: int


class _Leased(Refused):
    """A debit that the balance covers, but of which gateways have leased a part."""

    def __init__(self, faults: Sequence[str], owner_id: str) -> None:
        super().__init__(faults)
        self.owner_id = owner_id


@dataclass(frozen=True, slots=True)
class RefundOrder:
    """The part of a call's charge to refund. If `amount_nanos` is None, everything that was not
    refunded before, under an id of the gateway's own. If `reason` is None, a text with the call's
    id."""

    amount_nanos: int | None = None
    reason: str | None = None
    idempotency_id: str | None = None
    actor: str = "cli"


@dataclass(frozen=True, slots=True)
class Refund:
    """A refund of a call to its payer's wallet. `again` is true if it was booked before."""

    user: str
    line: Line
    again: bool


@dataclass(frozen=True, slots=True)
class Movement:
    """An operator's movement of money. The amount is above 0. With an idempotency id it counts
    once."""

    amount_nanos: int
    reason: str
    idempotency_id: str | None = None
    actor: str = "cli"
    reference: str | None = None


@in_snapshot
def show(db: peewee.Database, user: str) -> View:
    """Return the wallet of a user by name. Raises NotFound."""
    query = User.select(User.id, Wallet.balance).join(Wallet, on=(Wallet.user_id == User.id))
    row = first_row(db, query.where(User.name == user))
    if row is None:
        raise _no_wallet(user)
    leased, held = leases.lent(db, row[0])
    return View(user, row[1], held, leased)


def to_public(view: View, currency: str) -> dict[str, str]:
    """Return a wallet as people and scripts see it."""
    return {
        "user": view.user,
        "currency": currency,
        "balance": format_money(view.balance_nanos),
        "held": format_money(view.held_nanos),
        "leased": format_money(view.leased_nanos),
    }


def balances(db: peewee.Database, user_ids: Sequence[str]) -> dict[str, int]:
    """Return balances in nanos by user id, of those users that have a wallet."""
    query = Wallet.select(Wallet.user_id, Wallet.balance).where(Wallet.user_id << list(user_ids))
    return dict(raw_rows(db, query))


@in_snapshot
def ledger(db: peewee.Database, user: str) -> list[Line]:
    """Return all lines of a user's ledger in order of time. A day's charges are one line. Raises
    NotFound."""
    return lines_of(db, find_owner(db, user).id)


def credit(db: peewee.Database, user: str, movement: Movement) -> Line:
    """Add money to a wallet. Return the ledger line. If the id was already used for the same
    movement, return its line, with `again` set.

    Idempotent with an id. Without one, each call of this function counts once, even if the
    connection is lost meanwhile. Raises NotFound, and Refused for an invalid amount, reason or id.
    """
    return _move(db, user, CREDIT, movement)


def debit(db: peewee.Database, user: str, movement: Movement) -> Line:
    """Take money from a wallet, as `credit` adds it. Leased money that gateways do not hold is
    recalled first, for at most RECALL_WAIT_S. Raises Refused if less than the amount is free."""
    give_up_at = time.monotonic() + RECALL_WAIT_S
    while True:
        try:
            return _move(db, user, DEBIT, movement)
        except _Leased as error:
            if time.monotonic() >= give_up_at:
                raise Refused(error.faults) from None
            owner = error.owner_id
        transaction(db, lambda: leases.recall(db, owner))  # noqa: B023  run at once
        time.sleep(RECALL_PAUSE_S)


def _move(db: peewee.Database, user: str, kind: str, movement: Movement) -> Line:
    _check(movement)
    # Generated here, so that after a lost connection the line can be looked up.
    line_id = new_ulid()

    def work() -> Line:
        owner = find_owner(db, user)
        locked = _lock(db, owner)
        booked = find_line(db, line_id, movement.idempotency_id)
        if booked is not None:
            same = _same(booked, owner.id, kind, movement)
            return replace(same, again=booked.id != line_id)
        line = _new_line(line_id, owner.id, kind, movement, locked)
        _post(db, line, owner, movement.actor)
        return line

    return until_known(lambda: transaction(db, work))


def refund(db: peewee.Database, call_id: str, order: RefundOrder) -> Refund:
    """Refund what a call took from a wallet, or a part of it.

    A full refund, or a part with an id, is booked once. A repetition returns the line of the first,
    with `again` set. The refunds of a call never exceed what it took. Raises NotFound if there is
    no such record or user, and Refused if the call took nothing from a wallet or less than the
    amount is left.
    """
    line_id, own_id = new_ulid(), f"{REFUND}:{call_id}"
    if order.amount_nanos is not None:
        own_id += f":{order.idempotency_id or line_id}"
    reason = f"refund of call {call_id}" if order.reason is None else order.reason
    amount, part_id = order.amount_nanos, order.idempotency_id

    def work() -> Refund:
        booked = find_line(db, line_id, own_id)
        if booked is not None:
            if amount is not None:
                _same(booked, booked.user_id, REFUND, Movement(amount, reason, part_id))
            return Refund(_name_of(db, booked.user_id), booked, booked.id != line_id)
        owner, charged = _charged_by(db, call_id)
        wallet = _lock(db, owner)  # lock before reading earlier refunds: others wait here
        before = refunds_of(db, call_id)
        left = charged - sum(line.amount_nanos for line in before)
        if before and not left and amount is None:
            return Refund(owner.name, before[-1], again=True)
        movement = Movement(
            left if amount is None else amount, reason, own_id, order.actor, call_id
        )
        _check_refund(charged, left, movement)
        line = _new_line(line_id, owner.id, REFUND, movement, wallet)
        _post(db, line, owner, order.actor)
        return Refund(owner.name, line, again=False)

    _check(Movement(1 if amount is None else amount, reason, part_id))
    return until_known(lambda: transaction(db, work))


def _check_refund(charged: int, left: int, movement: Movement) -> None:
    call, amount = movement.reference, format_money(movement.amount_nanos)
    if not charged:
        raise Refused([f"the call {call} charged no wallet: nothing to refund"])
    if movement.amount_nanos > left:
        rest = f"only {format_money(left)} of the {format_money(charged)}" if left else "nothing"
        fact = f"{rest} that the call {call} took from a wallet is left to refund"
        raise Refused([f"{fact}, less than the amount {amount}"])


def refunds_of(db: peewee.Database, call_id: str) -> list[Line]:
    """Return the ledger lines that refunded a call, the oldest first."""
    return lines_with_id(db, f"{REFUND}:{call_id}")


def _name_of(db: peewee.Database, user_id: str) -> str:
    row = first_row(db, User.select(User.name).where(User.id == user_id))
    return user_id if row is None else str(row[0])


def _charged_by(db: peewee.Database, call_id: str) -> tuple[Owner, int]:
    """Return the user whose wallet paid for a call, and the amount."""
    try:
        day = day_of(call_id)
    except ValueError:
        raise NotFound(
            f'"{call_id}" is no id of a call; it is the x-request-id of the answer'
        ) from None
    query = (
        UsageRow.select(UsageRow.user_id, UsageRow.user, User.id, UsageRow.charges)
        .join(User, peewee.JOIN.LEFT_OUTER, on=(User.id == UsageRow.user_id))
        .where(UsageRow.day == day, UsageRow.id == call_id)
    )
    row = first_row(db, query)
    if row is None:
        raise NotFound(f"there is no record of a call {call_id}; it is written when the call ended")
    user_id, user, living_id, charges = row
    if living_id is None:
        raise NotFound(f"the user {user} of the call {call_id} has been removed")
    paid = (charge for charge in charges_from_json(charges) if charge.to == WALLET)
    return Owner(user_id, user), sum(charge.amount_nanos for charge in paid)


def until_known(attempt: Callable[[], Result]) -> Result:
    """Run `attempt`, a transaction that looks up its own line first, until its outcome is known.
    Raises OutcomeUnknown, StoreUnavailable, and Refused if others keep using the id."""
    unknown: OutcomeUnknown | None = None
    for _ in range(COMMIT_ATTEMPTS):
        try:
            return attempt()
        except OutcomeUnknown as error:
            # The next attempt looks the line up by its own id.
            unknown = error
        except Conflict:
            # Another command has just used the same idempotency id. The next attempt finds its
            # line.
            pass
        except StoreUnavailable as error:
            if unknown is None:
                raise
            unknown = OutcomeUnknown(f"{error}; look into the ledger whether it was booked")
        time.sleep(COMMIT_PAUSE_S)
    raise unknown or Refused(["the id is being used by other commands again and again"])


def book(db: peewee.Database, line_id: str, owner: Owner, kind: str, movement: Movement) -> Line:
    """Book a movement that the gateway itself makes, with its audit row, in the caller's
    transaction.

    The caller must ensure that this happens once. Raises NotFound if there is no wallet, and
    Refused for an impossible balance.
    """
    line = _new_line(line_id, owner.id, kind, movement, _lock(db, owner))
    _post(db, line, owner, movement.actor)
    return line


def _post(db: peewee.Database, line: Line, owner: Owner, actor: str) -> None:
    add_line(db, line)
    before = {"balance": format_money(line.balance_after_nanos - line.amount_nanos)}
    after = {"balance": format_money(line.balance_after_nanos), "reason": line.reason}
    if line.reference is not None:
        after["reference"] = line.reference
    audit.write(db, audit.Act(actor, line.kind, "wallet", owner.name, before, after))


def find_owner(db: peewee.Database, user: str) -> Owner:
    """Return the owner of a wallet by name. Raises NotFound."""
    row = first_row(db, User.select(User.id).where(User.name == user))
    if row is None:
        raise NotFound(f"there is no user {user}")
    return Owner(str(row[0]), user)


def _check(movement: Movement) -> None:
    faults = []
    if not 0 < movement.amount_nanos <= MAX_BIGINT:
        faults.append("the amount must be greater than 0")
    faults += _faults_of_reason(movement.reason)
    own_id = movement.idempotency_id
    if own_id is not None:
        if not 0 < len(own_id) <= ID_LIMIT_CHARS or not own_id.isprintable():
            faults.append(f"the id must have 1 to {ID_LIMIT_CHARS} printable characters")
        if own_id.startswith(OWN_IDS):
            faults.append(f"ids that begin with {' or '.join(OWN_IDS)} are the gateway's own")
    errors.refuse(faults)


def _faults_of_reason(reason: str) -> list[str]:
    if 0 < len(reason) <= REASON_LIMIT_CHARS:
        return []
    return [f"the reason must have 1 to {REASON_LIMIT_CHARS} characters"]


def _new_line(line_id: str, user_id: str, kind: str, movement: Movement, wallet: _Locked) -> Line:
    amount = movement.amount_nanos
    if kind == DEBIT:
        # A call may have cost more than it held, so the difference may be negative.
        free = max(0, wallet.balance_nanos - wallet.leased_nanos)
        if amount > free:
            raise _too_little(user_id, amount, free, wallet)
        amount = -amount
    after = wallet.balance_nanos + amount
    if after > MAX_BIGINT:
        raise Refused(["the balance would be too large"])
    return Line(
        *(line_id, user_id, kind, amount, after),
        *(movement.reference, movement.idempotency_id, movement.reason, wallet.at_ms),
    )


def _too_little(user_id: str, amount: int, free: int, wallet: _Locked) -> Refused:
    fact = f"only {format_money(free)} is free, less than the amount {format_money(amount)}"
    if amount > wallet.balance_nanos:
        return Refused([fact])
    lent = format_money(wallet.leased_nanos)
    return _Leased([f"{fact}: gateways have {lent} for running calls; try again later"], user_id)


def _same(booked: Line, user_id: str, kind: str, movement: Movement) -> Line:
    expected = (user_id, kind, movement.amount_nanos, movement.reason)
    if (booked.user_id, booked.kind, abs(booked.amount_nanos), booked.reason) != expected:
        whose = "" if booked.user_id == user_id else " of another user"
        amount = format_money(abs(booked.amount_nanos))
        booking = f'{booked.kind} of {amount}{whose}, reason "{booked.reason}"'
        remedy = "give this one an id of its own"
        raise Refused([f"the id {movement.idempotency_id} is that of a {booking}; {remedy}"])
    return booked


def _lock(db: peewee.Database, owner: Owner) -> _Locked:
    query = Wallet.select(Wallet.balance).where(Wallet.user_id == owner.id)
    if is_mysql(db):
        query = query.for_update()
    row = first_row(db, query)
    if row is None:
        raise _no_wallet(owner.name)
    last_ms = LedgerLine.select(peewee.fn.MAX(LedgerLine.at_ms))
    [(newest,)] = raw_rows(db, last_ms.where(LedgerLine.user_id == owner.id))
    leased, _ = leases.lent(db, owner.id)
    return _Locked(int(row[0]), leased, max(database_ms(db), (newest or 0) + 1))


def _no_wallet(user: str) -> NotFound:
    return NotFound(f"there is no user {user} with a wallet")

"""Redeem codes: texts that put money into a wallet, once.

A code exists in clear only when it is created. The store holds its digest, under the same peppers
as those of keys. A code is `slc-` and five groups of five characters of Crockford's base 32, which
has no I, L, O and U: 105 random bits and a checksum that detects any one wrong character and any
two exchanged ones. Case, blanks and hyphens do not matter, and lookalike characters are treated as
equal.
"""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import peewee

from store.db import audit, database
from store.db.database import database_ms, first_row, in_transaction, insert_rows, select_rows
from store.db.tables.money import RedeemCode
from store.db.tables.users import User
from store.money import wallet
from store.money.ledger import Line, find_line
from store.values.errors import NotFound, Refused, refuse
from store.values.fields import FieldType, Instant, Number, Optional
from store.values.ids import ALPHABET, new_ulid
from store.values.key_secrets import SHOWN_SUFFIX_CHARS, digest, digests, pepper_id
from store.values.pricing import MAX_BIGINT, format_money, parse_money
from store.values.texts import nearest
from store.values.usage_record import rfc3339, rfc3339_or_none

PREFIX = "slc-"
RANDOM_BITS = 105
GROUP_CHARS = 5
CODES_MAX = 1000
"""The maximum number of codes created at once."""

_RANDOM_CHARS = RANDOM_BITS // 5
_CHECK_CHARS = 4
# The greatest prime below 32 ** _CHECK_CHARS. One wrong character, or two exchanged ones, change
# the number by an amount that is not divisible by it.
_CHECK_PRIME = 1_048_573
_GAPS = re.compile(r"[\s-]+")
_LOOKALIKES = str.maketrans("ILO", "110")

NO_AMOUNT = "must be greater than 0"
OVER = "is over already"

ACTIVE = "active"
USED = "used"
DISABLED = "disabled"
EXPIRED = "expired"
MISTYPED = "mistyped"
UNKNOWN = "unknown"

_TOLD: Mapping[str, str] = {
    MISTYPED: "the code is mistyped: compare it with the printed one",
    UNKNOWN: "there is no such code",
    USED: "the code was used before, at {at}",
    DISABLED: "the code was disabled at {at}",
    EXPIRED: "the code expired at {at}",
}
"""The reasons why a code cannot be redeemed."""


class NotTaken(Refused):
    """A code that cannot be redeemed. `reason` is MISTYPED, UNKNOWN, USED, DISABLED or EXPIRED; for
    the last three, `at_ms` is when that happened."""

    def __init__(self, reason: str, at_ms: int = 0) -> None:
        super().__init__([_TOLD[reason].format(at=rfc3339(at_ms))])
        self.reason = reason
        self.at_ms = at_ms


@dataclass(frozen=True, slots=True)
class Made:
    """A new code, in clear."""

    id: str
    code: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Code:
    """A code as it is stored. `user` is the name of the user who redeemed it."""

    id: str
    last_four: str
    amount_nanos: int
    created_ms: int
    expires_ms: int | None
    disabled_ms: int | None
    redeemed_ms: int | None
    user: str | None

    def status_at(self, at_ms: int) -> str:
        """Return the status: used, disabled, expired or active."""
        if self.redeemed_ms is not None:
            return USED
        if self.disabled_ms is not None:
            return DISABLED
        expired = self.expires_ms is not None and self.expires_ms <= at_ms
        return EXPIRED if expired else ACTIVE


def make_code(number: int | None = None) -> str:
    """Return a new code. `number` (RANDOM_BITS bits) is random if None."""
    number = secrets.randbits(RANDOM_BITS) if number is None else number
    return _grouped(_base32(number, _RANDOM_CHARS) + _base32(number % _CHECK_PRIME, _CHECK_CHARS))


def canonical(typed: str) -> str | None:
    """Return the code in its printed form, or None if it was mistyped."""
    text = _GAPS.sub("", typed).upper()
    head = PREFIX.rstrip("-").upper()
    if not text.startswith(head):
        return None
    body = text.removeprefix(head).translate(_LOOKALIKES)
    if len(body) != _RANDOM_CHARS + _CHECK_CHARS or any(char not in ALPHABET for char in body):
        return None
    number, check = _number(body[:_RANDOM_CHARS]), _number(body[_RANDOM_CHARS:])
    return _grouped(body) if number % _CHECK_PRIME == check else None


def _grouped(body: str) -> str:
    groups = (body[i : i + GROUP_CHARS] for i in range(0, len(body), GROUP_CHARS))
    return PREFIX + "-".join(groups)


def _base32(number: int, chars: int) -> str:
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(chars)))


def _number(text: str) -> int:
    number = 0
    for char in text:
        number = number << 5 | ALPHABET.index(char)
    return number


@dataclass(frozen=True, slots=True)
class NewCodes:
    """The number of codes to create, their value, and their expiry (None: never)."""

    count: int
    amount_nanos: int
    expires_ms: int | None = None


@in_transaction
def create(db: peewee.Database, order: NewCodes, pepper: str, actor: str) -> list[Made]:
    """Create codes, all or none. They cannot be read again later. Raises Refused for invalid
    values."""
    created_ms = database_ms(db)
    _judge(order, created_ms)
    created = [Made(new_ulid(), make_code()) for _ in range(order.count)]
    rows = [
        {
            "id": code.id,
            "digest": digest(code.code, pepper),
            "pepper_id": pepper_id(pepper),
            "last_four": code.code[-SHOWN_SUFFIX_CHARS:],
            "amount": order.amount_nanos,
            "expires_ms": order.expires_ms,
            "created_ms": created_ms,
        }
        for code in created
    ]
    insert_rows(db, RedeemCode, rows)
    expires_at = rfc3339_or_none(order.expires_ms)
    after = {"amount": format_money(order.amount_nanos), "expires_at": expires_at}
    for code in created:
        audit.write(db, audit.Act(actor, "create", "code", code.id, None, after))
    return created


def _judge(wanted: NewCodes, at_ms: int) -> None:
    faults = []
    if not 0 < wanted.count <= CODES_MAX:
        faults.append(f"the number of codes must be from 1 to {CODES_MAX}")
    if not 0 < wanted.amount_nanos <= MAX_BIGINT:
        faults.append(f"the amount {NO_AMOUNT}")
    if wanted.expires_ms is not None and wanted.expires_ms <= at_ms:
        faults.append(f"the time of expiry {OVER}")
    refuse(faults)


def list_codes(db: peewee.Database) -> list[Code]:
    """Return all codes, the oldest first."""
    query = _codes().order_by(RedeemCode.created_ms, RedeemCode.id)
    return [Code(*row) for row in select_rows(db, query)]


def page(db: peewee.Database, limit: int, before: str = "", search: str = "") -> list[Code]:
    """Return codes, the newest first, at most `limit`. `before`: the id of a code; only codes
    created earlier are returned. `search`: an id, the last four characters of a code, or the name
    of the user who redeemed it."""
    query = _codes().order_by(RedeemCode.id.desc()).limit(limit)
    if before:
        query = query.where(RedeemCode.id < before)
    if search:
        of_code = (RedeemCode.id == search) | (RedeemCode.last_four == search.upper()[-4:])
        query = query.where(of_code | (User.name == search))
    return [Code(*row) for row in select_rows(db, query)]


def show(db: peewee.Database, code_id: str) -> Code:
    """Return a code by its id. Raises NotFound."""
    code = _by_id(db, code_id)
    if code is None:
        raise _no_code(code_id)
    return code


def _parse_amount(text: str) -> int:
    nanos = parse_money(text)
    if nanos == 0:
        raise ValueError(NO_AMOUNT)
    return nanos


# The fields that can be changed: name, attribute of Code, type.
_FIELDS: Mapping[str, tuple[str, FieldType]] = {
    "amount": ("amount_nanos", Number(_parse_amount, format_money)),
    "expires_at": ("expires_ms", Optional(Instant())),
}


def set_fields(db: peewee.Database, code_id: str, words: Mapping[str, str], actor: str) -> bool:
    """Change the amount and the expiry of a code from command-line words. Return whether anything
    changed. Raises NotFound, and Refused with all faults or if the code has been redeemed."""
    values = _parsed(code_id, words, database_ms(db))
    change = _Change("update", "changed", lambda code: replace(code, **values))
    return _change_all(db, [code_id], change, actor) == 1


def _parsed(code_id: str, words: Mapping[str, str], at_ms: int) -> dict[str, Any]:
    where, faults, values = f'code "{code_id}"', [], {}
    for name, text in words.items():
        if name not in _FIELDS:
            faults.append(f'{where}: unknown field "{name}"{nearest(name, _FIELDS)}')
            continue
        attribute, kind = _FIELDS[name]
        try:
            values[attribute] = kind.parse(kind.from_text(text))
        except ValueError as error:
            faults.append(f"{where}: {name}: {error}")
    expires_ms = values.get("expires_ms")
    if expires_ms is not None and expires_ms <= at_ms:
        faults.append(f"{where}: expires_at: {OVER}")
    refuse(faults)
    return values


def disable(db: peewee.Database, ids: Sequence[str], actor: str) -> int:
    """Disable codes, all or none. Return how many were not disabled before. Raises NotFound, and
    Refused if one has been redeemed."""
    at_ms = database_ms(db)

    def changed(code: Code) -> Code:
        return code if code.disabled_ms is not None else replace(code, disabled_ms=at_ms)

    return _change_all(db, ids, _Change("disable", "disabled", changed), actor)


def enable(db: peewee.Database, ids: Sequence[str], actor: str) -> int:
    """Enable disabled codes again. Returns and raises as `disable` does."""
    change = _Change("enable", "enabled", lambda code: replace(code, disabled_ms=None))
    return _change_all(db, ids, change, actor)


def remove(db: peewee.Database, ids: Sequence[str], actor: str) -> int:
    """Remove codes, all or none. Return how many. Raises NotFound, and Refused if one has been
    redeemed, since the ledger refers to it."""
    return _change_all(db, ids, _Change("remove", "removed", lambda code: None), actor)


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a code: the audit log's word, the word in refusals, and a function that returns
    the new state (None: removed)."""

    action: str
    done: str
    of: Callable[[Code], Code | None]


@in_transaction
def _change_all(db: peewee.Database, ids: Sequence[str], change: _Change, actor: str) -> int:
    """Change codes that have not been redeemed, all or none. Return how many changed."""
    changed = 0
    # In order of id, so that concurrent changes of the same codes do not deadlock.
    for code_id in sorted(set(ids)):
        code = _hold(db, code_id, change.done)
        after = change.of(code)
        if after != code:
            _write(db, code, after)
            audit.write(db, _act(actor, change.action, code, after))
            changed += 1
    return changed


def _hold(db: peewee.Database, code_id: str, done: str) -> Code:
    """Lock a code that has not been redeemed, in one statement like `_take`, so that it cannot be
    redeemed until the transaction ends. Raises NotFound, Refused."""
    unused = (RedeemCode.id == code_id) & RedeemCode.redeemed_ms.is_null()
    held = RedeemCode.update(redeemed_ms=None).where(unused).execute(db) == 1
    code = _by_id(db, code_id)
    if code is None:
        raise _no_code(code_id)
    if not held:
        when = rfc3339_or_none(code.redeemed_ms)
        raise Refused([f"the code {code_id} was used at {when}: it cannot be {done}"])
    return code


def _write(db: peewee.Database, code: Code, after: Code | None) -> None:
    if after is None:
        RedeemCode.delete().where(RedeemCode.id == code.id).execute(db)
        return
    RedeemCode.update(
        amount=after.amount_nanos, expires_ms=after.expires_ms, disabled_ms=after.disabled_ms
    ).where(RedeemCode.id == code.id).execute(db)


def _act(actor: str, action: str, code: Code, after: Code | None) -> audit.Act:
    """Return the audit row of a change: the fields that differ. For a removed code: all fields, and
    its last four characters, which identify a printed code."""
    old = _plain(code)
    if after is None:
        removed = {**old, "last_four": code.last_four}
        return audit.Act(actor, action, "code", code.id, removed)
    new = _plain(after)
    differing = [name for name in old if old[name] != new[name]]
    before, then = ({name: fields[name] for name in differing} for fields in (old, new))
    return audit.Act(actor, action, "code", code.id, before, then)


def _plain(code: Code) -> dict[str, str | None]:
    return {
        "amount": format_money(code.amount_nanos),
        "expires_at": rfc3339_or_none(code.expires_ms),
        "disabled_at": rfc3339_or_none(code.disabled_ms),
    }


def public(code: Code, at_ms: int) -> dict[str, Any]:
    """Return a code as people and scripts see it, with its last four characters only."""
    return {
        "id": code.id,
        "code": f"{PREFIX}…{code.last_four}",
        "amount": format_money(code.amount_nanos),
        "status": code.status_at(at_ms),
        "created_at": rfc3339_or_none(code.created_ms),
        "expires_at": rfc3339_or_none(code.expires_ms),
        "disabled_at": rfc3339_or_none(code.disabled_ms),
        "redeemed_at": rfc3339_or_none(code.redeemed_ms),
        "user": code.user,
    }


def redeem(db: peewee.Database, user: str, typed: str, peppers: Sequence[str], actor: str) -> Line:
    """Credit the value of a code to a user's wallet. Return the ledger line. A code is credited
    once, even under concurrent redemption. Raises NotFound for the user, and NotTaken."""
    code = canonical(typed)
    if code is None:
        raise NotTaken(MISTYPED)
    line_id, marks = new_ulid(), digests(code, peppers)

    def work() -> Line:
        owner = wallet.find_owner(db, user)
        code_id = _find(db, marks)
        amount = _take(db, code_id, owner.id)
        if amount is not None:
            movement = wallet.Movement(
                amount_nanos=amount,
                reason=f"redeem code …{code[-SHOWN_SUFFIX_CHARS:]}",
                idempotency_id=f"{wallet.REDEEM}:{code_id}",
                actor=actor,
                reference=code_id,
            )
            return wallet.book(db, line_id, owner, wallet.REDEEM, movement)
        # An earlier attempt whose outcome was unknown may have redeemed it.
        line = find_line(db, line_id)
        if line is None:
            raise _why_not(db, code_id)
        return line

    return wallet.until_known(lambda: database.transaction(db, work))


@database.in_snapshot
def worth(db: peewee.Database, typed: str, peppers: Sequence[str]) -> int:
    """Return the amount that a code would credit now. Raises NotTaken as `redeem` does."""
    code = canonical(typed)
    if code is None:
        raise NotTaken(MISTYPED)
    code_id = _find(db, digests(code, peppers))
    row = _by_id(db, code_id)
    if row is None or row.status_at(database_ms(db)) != ACTIVE:
        raise _why_not(db, code_id)
    return row.amount_nanos


def _find(db: peewee.Database, marks: Sequence[bytes]) -> str:
    row = first_row(db, RedeemCode.select(RedeemCode.id).where(RedeemCode.digest << marks))
    if row is None:
        raise NotTaken(UNKNOWN)
    return str(row[0])


def _take(db: peewee.Database, code_id: str, user_id: str) -> int | None:
    """Mark a code as used by a user. Return its value, or None if it cannot be used. One statement,
    so that the row lock lets only one caller succeed. The amount is read under that lock."""
    at_ms = database_ms(db)
    of_id = RedeemCode.id == code_id
    active = RedeemCode.redeemed_ms.is_null() & RedeemCode.disabled_ms.is_null()
    in_time = RedeemCode.expires_ms.is_null() | (RedeemCode.expires_ms > at_ms)
    update = RedeemCode.update(redeemed_ms=at_ms, redeemed_by=user_id)
    if update.where(of_id & active & in_time).execute(db) != 1:
        return None
    [(amount,)] = select_rows(db, RedeemCode.select(RedeemCode.amount).where(of_id))
    return int(amount)


def _why_not(db: peewee.Database, code_id: str) -> NotTaken:
    code = _by_id(db, code_id)
    if code is not None and code.redeemed_ms is not None:
        return NotTaken(USED, code.redeemed_ms)
    if code is not None and code.disabled_ms is not None:
        return NotTaken(DISABLED, code.disabled_ms)
    if code is not None and code.expires_ms is not None:
        return NotTaken(EXPIRED, code.expires_ms)
    return NotTaken(UNKNOWN)


def _by_id(db: peewee.Database, code_id: str) -> Code | None:
    row = first_row(db, _codes().where(RedeemCode.id == code_id))
    return None if row is None else Code(*row)


def _codes() -> Any:
    """Return the query for the fields of Code, in order."""
    return RedeemCode.select(
        *(RedeemCode.id, RedeemCode.last_four, RedeemCode.amount, RedeemCode.created_ms),
        *(RedeemCode.expires_ms, RedeemCode.disabled_ms, RedeemCode.redeemed_ms),
        peewee.fn.COALESCE(User.name, RedeemCode.redeemed_by),
    ).join(User, peewee.JOIN.LEFT_OUTER, on=(User.id == RedeemCode.redeemed_by))


def _no_code(code_id: str) -> NotFound:
    return NotFound(f"there is no code with the id {code_id}")

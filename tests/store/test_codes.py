"""Redeem codes: typed by people, worth money once, on both databases."""

import itertools
import random

import pytest

from store import audit, codes, tables
from store.books import verify
from store.codes import CODES_MAX, Wanted, canonical, create, list_codes, make_code, redeem, revoke
from store.database import execute, transaction
from store.errors import NotFound, OutcomeUnknown, Refused
from store.ids import ALPHABET, new_ulid, now_ms
from store.pricing import MAX_BIGINT
from store.wallet import REDEEM, Movement, credit, ledger, show

MINUTE_MS = 60_000
PREFIX_CHARS = len(codes.PREFIX)


@pytest.fixture
def db(database, editor, read):
    editor.apply(read('[[user]]\nname = "alice"\n[[user]]\nname = "bob"\n'))
    return database


@pytest.fixture
def make(db, pepper):
    def made(count=1, amount=5, expires_ms=None):
        return create(db, Wanted(count, amount, expires_ms), pepper, "olga")

    return made


@pytest.fixture
def use(db, pepper):
    return lambda code, user="alice", *peppers: redeem(db, user, code, peppers or [pepper], "olga")


@pytest.fixture
def code(make):
    return make()[0]


@pytest.fixture
def later(monkeypatch):
    return lambda ms: monkeypatch.setattr(codes, "now_ms", lambda: now_ms() + ms)


# The text of a code.


def test_a_code_is_five_groups_of_five_with_105_random_bits():
    number = random.Random(1).getrandbits(105)
    code = make_code(number)
    assert code == make_code(number) == canonical(code)
    head, *groups = code.split("-")
    assert head == "slc" and [len(group) for group in groups] == [5] * 5
    assert not set("".join(groups)) - set(ALPHABET)
    assert len({make_code(one) for one in (0, 1, 1 << 104, (1 << 105) - 1)}) == 4
    assert len({make_code() for _ in range(100)}) == 100


def test_it_may_be_typed_as_people_do():
    code = make_code(0b00001_00000)
    assert code[PREFIX_CHARS:].startswith("00000-") and "1" in code
    for typed in (
        code.lower(),
        code.replace("-", ""),
        f"  {code.replace('-', ' ')}\n",
        code.replace("0", "O"),
        code.replace("1", "l"),
        code.replace("1", "I").upper(),
    ):
        assert canonical(typed) == code


def test_every_wrong_character_shows():
    code = make_code()
    for place in range(PREFIX_CHARS, len(code)):
        for char in ALPHABET if code[place] != "-" else "":
            typed = code[:place] + char + code[place + 1 :]
            assert (canonical(typed) is None) == (typed != code)


def test_every_two_exchanged_characters_show():
    body = make_code().removeprefix(codes.PREFIX).replace("-", "")
    for i, j in itertools.combinations(range(len(body)), 2):
        typed = list(body)
        typed[i], typed[j] = body[j], body[i]
        assert (canonical(codes.PREFIX + "".join(typed)) is None) == (body[i] != body[j])


@pytest.mark.parametrize(
    "typed",
    ["", "slc-", "slc", "x", "sk-slc-aaaaaaaaaaaaaaa", "slc-" + "U" * 25, "slc-" + "é" * 25],
)
def test_what_is_no_code_shows(typed):
    assert canonical(typed) is None


def test_one_character_more_or_less_shows():
    code = make_code()
    assert canonical(code[:-1]) is canonical(code + "0") is canonical(code[4:]) is None


# Making, listing and ending codes.


def test_codes_are_stored_as_digests_only(db, make, pepper):
    made = make(3)
    assert len({one.code for one in made}) == len({one.id for one in made}) == 3
    assert made[0].code not in repr(made)
    stored = [*tables.RedeemCode.select().bind(db).dicts()]
    for one in made:
        [row] = [row for row in stored if row["id"] == one.id]
        assert bytes(row["digest"]) == codes.digest(one.code, pepper)
        assert row["pepper_id"] == codes.pepper_id(pepper)
        assert row["last_four"] == one.code[-4:]
        for text in (one.code, one.code.replace("-", ""), one.code[PREFIX_CHARS:][:11]):
            assert text not in repr([stored, audit.entries(db, 10)])


def test_each_code_has_its_audit_row(db, make, use):
    expires_ms = now_ms() + MINUTE_MS
    first, second = make(2, 10**9, expires_ms)
    acts = audit.entries(db, 10)
    assert {act["name"] for act in acts if act["kind"] == "code"} == {first.id, second.id}
    assert acts[0]["actor"] == "olga" and acts[0]["action"] == "create"
    assert acts[0]["after"] == {"amount": "1", "expires_at": codes.rfc3339(expires_ms)}
    revoke(db, [first.id], "rita")
    use(second.code)
    acts = [act for act in audit.entries(db, 10) if act["action"] in ("revoke", REDEEM)]
    assert {(act["actor"], act["action"], act["kind"], act["name"]) for act in acts} == {
        ("rita", "revoke", "code", first.id),
        ("olga", REDEEM, "wallet", "alice"),
    }


@pytest.mark.parametrize("count", [0, -1, CODES_MAX + 1])
@pytest.mark.parametrize("amount", [0, -1, MAX_BIGINT + 1])
def test_what_cannot_be_made_is_refused_with_all_faults(db, make, count, amount):
    with pytest.raises(Refused) as refused:
        make(count, amount, now_ms())
    assert len(refused.value.faults) == 3
    assert list_codes(db) == []


def test_many_are_made_at_once(db, make):
    assert len(make(CODES_MAX)) == len(list_codes(db)) == CODES_MAX


def test_a_list_says_what_became_of_each(db, make, use):
    active, used, revoked, expired = (make(expires_ms=now_ms() + MINUTE_MS)[0] for _ in range(4))
    use(used.code, "bob")
    revoke(db, [revoked.id], "olga")
    by_id = {code.id: code for code in list_codes(db)}
    assert len(by_id) == 4
    at_ms = now_ms()
    assert by_id[active.id].status_at(at_ms) == codes.ACTIVE
    assert by_id[used.id].status_at(at_ms) == codes.USED
    assert by_id[revoked.id].status_at(at_ms) == codes.REVOKED
    # The moment of expiry itself is too late.
    assert by_id[expired.id].status_at(by_id[expired.id].expires_ms) == codes.EXPIRED
    assert by_id[used.id].status_at(at_ms + 2 * MINUTE_MS) == codes.USED
    assert by_id[used.id].user == "bob" and by_id[active.id].user is None
    assert by_id[used.id].last_four == used.code[-4:]
    assert by_id[used.id].amount_nanos == 5


def test_the_list_keeps_codes_of_users_who_are_gone(db, code, use):
    line = use(code.code)
    transaction(db, lambda: execute(db, 'DELETE FROM "users"'))
    assert list_codes(db)[0].user == line.user_id


def test_revoking_is_all_or_nothing(db, make, use):
    first, second, third = make(3)
    use(third.code)
    with pytest.raises(Refused, match=f"{third.id} was used"):
        revoke(db, [first.id, second.id, third.id], "olga")
    missing = new_ulid()
    with pytest.raises(NotFound, match=missing):
        revoke(db, [first.id, missing], "olga")
    assert {code.revoked_ms for code in list_codes(db)} == {None}
    assert revoke(db, [first.id, second.id, first.id], "olga") == 2
    acts = len(audit.entries(db, 100))
    assert revoke(db, [first.id, second.id], "olga") == 0
    assert len(audit.entries(db, 100)) == acts


# Redeeming.


def test_a_code_puts_money_into_a_wallet(db, code, use):
    credit(db, "alice", Movement(10, "paid"))
    line = use(code.code.lower().replace("-", " "))
    assert (line.kind, line.amount_nanos, line.balance_after_nanos) == ("redeem", 5, 15)
    assert (line.reference, line.idempotency_id) == (code.id, f"redeem:{code.id}")
    assert line.reason == f"redeem code …{code.code[-4:]}"
    assert line in ledger(db, "alice")
    assert show(db, "alice").balance_nanos == 15
    assert verify(db) == []


def test_a_code_is_used_once(db, code, use):
    use(code.code)
    for user in ("alice", "bob"):
        with pytest.raises(Refused, match="used before, at 2"):
            use(code.code, user)
    assert (show(db, "alice").balance_nanos, show(db, "bob").balance_nanos) == (5, 0)
    assert len(ledger(db, "alice")) == 1 and ledger(db, "bob") == []
    assert verify(db) == []


def test_each_reason_has_its_message(db, make, use, later):
    expiring, revoked = make(expires_ms=now_ms() + MINUTE_MS)[0], make()[0]
    revoke(db, [revoked.id], "olga")
    with pytest.raises(Refused, match="revoked at 2"):
        use(revoked.code)
    with pytest.raises(Refused, match="no such code"):
        use(make_code())
    with pytest.raises(Refused, match="mistyped") as mistyped:
        use(revoked.code[:-1] + "U")
    assert revoked.code[:-1] not in str(mistyped.value)
    with pytest.raises(NotFound, match="nobody"):
        use(expiring.code, "nobody")
    later(MINUTE_MS)
    with pytest.raises(Refused, match="expired at 2"):
        use(expiring.code)
    assert show(db, "alice").balance_nanos == 0 and ledger(db, "alice") == []


def test_a_code_that_expires_is_good_until_then(make, use, later):
    code = make(expires_ms=now_ms() + 2 * MINUTE_MS)[0]
    later(MINUTE_MS)
    assert use(code.code).amount_nanos == 5


def test_codes_outlive_a_new_pepper(code, use, pepper):
    with pytest.raises(Refused, match="no such code"):
        use(code.code, "alice", "new")
    assert use(code.code, "alice", "new", pepper).reference == code.id


def test_a_refusal_of_the_wallet_leaves_the_code_unused(db, code, use):
    credit(db, "alice", Movement(MAX_BIGINT, "much"))
    with pytest.raises(Refused, match="too large"):
        use(code.code)
    transaction(db, lambda: execute(db, 'DELETE FROM "wallets" WHERE "balance" > 0'))
    with pytest.raises(NotFound, match="alice"):
        use(code.code)
    assert use(code.code, "bob").balance_after_nanos == 5


@pytest.mark.parametrize("booked", [True, False])
def test_a_lost_reply_to_the_commit_counts_once(db, code, use, monkeypatch, booked):
    real = codes.transaction
    tries = []

    def transact(db, work):
        tries.append(work)
        if len(tries) > 1:
            return real(db, work)
        if booked:
            real(db, work)
        raise OutcomeUnknown("lost during commit")

    monkeypatch.setattr(codes, "transaction", transact)
    monkeypatch.setattr("store.wallet.COMMIT_PAUSE_S", 0)
    line = use(code.code)
    assert ledger(db, "alice") == [line]
    assert show(db, "alice").balance_nanos == 5
    assert len(tries) == 2


def test_a_code_that_vanishes_meanwhile_is_none(db, code, use, monkeypatch):
    def take(db, code_id, user_id):
        execute(db, 'DELETE FROM "codes" WHERE "id" = ?', (code_id,))
        return False

    monkeypatch.setattr(codes, "_take", take)
    with pytest.raises(Refused, match="no such code"):
        use(code.code)

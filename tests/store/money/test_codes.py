"""Redeem codes: typed by users, worth money once, on both databases."""

import itertools
import random
import threading
import time
from dataclasses import replace

import pytest

from store.db import audit
from store.db.database import discard, execute
from store.db.tables.money import RedeemCode
from store.money import codes
from store.money.books import verify
from store.money.codes import NotTaken, canonical, disable, enable, list_codes, make_code, remove
from store.money.ledger import Line
from store.money.wallet import REDEEM, Movement, credit, ledger, show
from store.values.errors import NotFound, OutcomeUnknown, Refused
from store.values.ids import ALPHABET, new_ulid, now_ms
from store.values.pricing import MAX_BIGINT
from tests.support.stores import balances, change

MINUTE_MS = 60_000
PREFIX_CHARS = len(codes.PREFIX)
LONG_ENOUGH_S = 0.2
"""Time to use or change a code, if nothing blocks that."""
FAR = "2099-01-01T00:00:00.000Z"
MANY = (disable, enable, remove)
CHANGES = {
    "disable": lambda db, code_id: disable(db, [code_id], "rita"),
    "enable": lambda db, code_id: enable(db, [code_id], "rita"),
    "remove": lambda db, code_id: remove(db, [code_id], "rita"),
    "set": lambda db, code_id: codes.set_fields(db, code_id, {"amount": "7"}, "rita"),
}
"""All ways to change a code."""
every_change = pytest.mark.parametrize("alter", CHANGES.values(), ids=CHANGES)


@pytest.fixture
def db(database, users):
    return database


@pytest.fixture
def make(db, pepper):
    def made(count=1, amount=5, expires_ms=None):
        return codes.create(db, codes.NewCodes(count, amount, expires_ms), pepper, "olga")

    return made


@pytest.fixture
def use(db, pepper):
    return lambda code, user="alice", *peppers: codes.redeem(
        db, user, code, peppers or [pepper], "olga"
    )


@pytest.fixture
def code(make):
    return make()[0]


@pytest.fixture
def later(monkeypatch):
    return lambda ms: monkeypatch.setattr(codes, "database_ms", lambda db: now_ms() + ms)


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
    bare = code.replace("-", "")
    typed = [code.lower(), bare, f"  {code.replace('-', ' ')}\n", code.replace("0", "O")]
    typed += [code.replace("1", "l"), code.replace("1", "I").upper()]
    assert {canonical(text) for text in typed} == {code}


def test_every_wrong_character_and_every_two_exchanged_show():
    code = make_code()
    places = [place for place in range(PREFIX_CHARS, len(code)) if code[place] != "-"]
    for place, char in itertools.product(places, ALPHABET):
        typed = code[:place] + char + code[place + 1 :]
        assert (canonical(typed) is None) == (typed != code)
    for i, j in itertools.combinations(places, 2):
        typed = list(code)
        typed[i], typed[j] = code[j], code[i]
        assert (canonical("".join(typed)) is None) == (code[i] != code[j])


@pytest.mark.parametrize(
    "typed",
    [
        *("", "slc-", "slc", "x", "sk-slc-aaaaaaaaaaaaaaa", "slc-" + "U" * 25, "slc-" + "é" * 25),
        *(make_code(7)[:-1], make_code(7) + "0", make_code(7)[4:]),
    ],
)
def test_what_is_no_code_shows(typed):
    assert canonical(typed) is None


# Creating, listing and changing codes.


def test_codes_are_stored_as_digests_only(db, make, pepper):
    created = make(3)
    assert len({code.code for code in created}) == 3
    assert created[0].code not in repr(created)
    stored = {row["id"]: row for row in RedeemCode.select().bind(db).dicts()}
    assert stored.keys() == {code.id for code in created}
    for code in created:
        row = stored[code.id]
        assert (bytes(row["digest"]), row["pepper_id"], row["last_four"]) == (
            *(codes.digest(code.code, pepper), codes.pepper_id(pepper)),
            code.code[-4:],
        )
        for text in (code.code, code.code.replace("-", ""), code.code[PREFIX_CHARS:][:11]):
            assert text not in repr([stored, audit.entries(db, 10)])


def test_each_code_has_its_audit_row(db, make, use):
    expires_ms = now_ms() + MINUTE_MS
    first, second = make(2, 10**9, expires_ms)
    after = {"amount": "1", "expires_at": codes.rfc3339(expires_ms)}
    acts = [(act["actor"], act["action"], act["after"]) for act in audit.entries(db, 10)]
    assert acts == [("olga", "create", after)] * 2
    assert {act["name"] for act in audit.entries(db, 10)} == {first.id, second.id}
    use(second.code)
    [act] = [act for act in audit.entries(db, 10) if act["action"] == REDEEM]
    assert (act["actor"], act["kind"], act["name"]) == ("olga", "wallet", "alice")


def test_each_change_has_its_audit_row_with_before_and_after(db, make, monkeypatch):
    code = make(1, 10**9)[0]
    at_ms = now_ms()
    at = codes.rfc3339(at_ms)
    monkeypatch.setattr(codes, "database_ms", lambda db: at_ms)
    codes.set_fields(db, code.id, {"amount": "2", "expires_at": ""}, "rita")
    codes.set_fields(db, code.id, {"amount": "2", "expires_at": FAR}, "rita")
    for alter in MANY:
        alter(db, [code.id], "rita")
    acts = [act for act in audit.entries(db, 10) if act["actor"] == "rita"]
    assert {(act["kind"], act["name"]) for act in acts} == {("code", code.id)}
    gone = {"amount": "2", "expires_at": FAR, "disabled_at": None, "last_four": code.code[-4:]}
    changes = [(act["action"], act["before"], act["after"]) for act in acts]
    assert sorted(changes, key=str) == [
        ("disable", {"disabled_at": None}, {"disabled_at": at}),
        ("enable", {"disabled_at": at}, {"disabled_at": None}),
        ("remove", gone, None),
        ("update", {"amount": "1"}, {"amount": "2"}),
        ("update", {"expires_at": None}, {"expires_at": FAR}),
    ]


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("count", [0, -1, codes.CODES_MAX + 1])
@pytest.mark.parametrize("amount", [0, -1, MAX_BIGINT + 1])
def test_what_cannot_be_made_is_refused_with_all_faults(db, make, count, amount):
    with pytest.raises(Refused) as refused:
        make(count, amount, now_ms())
    assert len(refused.value.faults) == 3
    assert list_codes(db) == []


def test_many_are_made_at_once(db, make):
    assert len(make(codes.CODES_MAX)) == len(list_codes(db)) == codes.CODES_MAX


def test_a_list_says_what_became_of_each(db, make, use):
    active, used, disabled, expired = (make(expires_ms=now_ms() + MINUTE_MS)[0] for _ in range(4))
    line = use(used.code, "bob")
    disable(db, [disabled.id], "olga")
    by_id = {code.id: code for code in list_codes(db)}
    assert len(by_id) == 4
    at_ms = now_ms()
    for code, moment_ms, status in (
        (active, at_ms, codes.ACTIVE),
        (used, at_ms, codes.USED),
        (used, at_ms + 2 * MINUTE_MS, codes.USED),
        (disabled, at_ms, codes.DISABLED),
        # At the exact time of expiry it is too late.
        (expired, by_id[expired.id].expires_ms, codes.EXPIRED),
    ):
        assert by_id[code.id].status_at(moment_ms) == status
    shown = by_id[used.id]
    assert (shown.user, shown.last_four, shown.amount_nanos) == ("bob", used.code[-4:], 5)
    assert by_id[active.id].user is None
    assert [codes.show(db, code.id) for code in by_id.values()] == [*by_id.values()]
    with pytest.raises(NotFound, match="no code with the id x"):
        codes.show(db, "x")
    change(db, 'DELETE FROM "users"')
    assert codes.show(db, used.id).user == line.user_id


@pytest.mark.parametrize("alter", MANY)
def test_many_are_changed_all_or_none(db, make, use, alter):
    first, second, third = make(3)
    if alter is enable:
        disable(db, [first.id, second.id], "olga")
    use(third.code)
    before, acts = list_codes(db), len(audit.entries(db, 100))
    with pytest.raises(Refused, match=f"{third.id} was used at 2.*cannot be {alter.__name__}d"):
        alter(db, [first.id, second.id, third.id], "olga")
    missing = new_ulid()
    with pytest.raises(NotFound, match=missing):
        alter(db, [first.id, missing], "olga")
    assert list_codes(db) == before and len(audit.entries(db, 100)) == acts
    assert alter(db, [first.id, second.id, first.id], "olga") == 2
    assert len(audit.entries(db, 100)) == acts + 2


def test_what_is_so_already_is_left_alone(db, make, use):
    first, second = make(2)
    assert disable(db, [first.id], "olga") == 1
    [disabled] = [code for code in list_codes(db) if code.id == first.id]
    time.sleep(0.002)
    assert disable(db, [first.id, second.id], "olga") == 1
    assert codes.show(db, first.id) == disabled
    assert enable(db, [first.id, second.id], "olga") == 2
    acts = len(audit.entries(db, 100))
    assert enable(db, [first.id, second.id], "olga") == 0
    assert (
        codes.set_fields(db, first.id, {"amount": "0.000000005", "expires_at": ""}, "olga") is False
    )
    assert len(audit.entries(db, 100)) == acts
    assert {code.disabled_ms for code in list_codes(db)} == {None}
    assert use(first.code).amount_nanos == 5


def test_amount_and_expiry_can_be_set(db, make, use, later):
    code, other = make(2, expires_ms=now_ms() + MINUTE_MS)
    before = {one.id: one for one in list_codes(db)}
    assert codes.set_fields(db, code.id, {"amount": "1.5", "expires_at": FAR}, "olga")
    changed = replace(before[code.id], amount_nanos=15 * 10**8, expires_ms=4_070_908_800_000)
    assert {one.id: one for one in list_codes(db)} == {code.id: changed, other.id: before[other.id]}
    later(MINUTE_MS)
    assert codes.set_fields(db, other.id, {"amount": "2"}, "olga")
    with pytest.raises(Refused, match="expired at 2"):
        use(other.code)
    assert codes.set_fields(db, other.id, {"expires_at": ""}, "olga")
    assert codes.show(db, other.id).expires_ms is None
    assert use(code.code).amount_nanos == 15 * 10**8
    assert use(other.code).amount_nanos == 2 * 10**9
    assert verify(db) == []


@pytest.mark.databases("sqlite")
def test_what_cannot_be_set_is_refused_with_all_faults(db, code, use):
    words = {"amuont": "1", "amount": "0", "expires_at": "2020-01-01T00:00:00Z"}
    with pytest.raises(Refused) as refused:
        codes.set_fields(db, code.id, words, "olga")
    assert refused.value.faults == [
        f'code "{code.id}": unknown field "amuont"; did you mean "amount"?',
        f'code "{code.id}": amount: must be greater than 0',
        f'code "{code.id}": expires_at: is over already',
    ]
    for field, text, message in (
        ("expires_at", "2099-01-01", "must be a time like"),
        ("amount", "9999999999", "too large"),
    ):
        with pytest.raises(Refused, match=message):
            codes.set_fields(db, code.id, {field: text}, "olga")
    with pytest.raises(NotFound, match="no code with the id x"):
        codes.set_fields(db, "x", {"amount": "1"}, "olga")
    assert codes.show(db, code.id).amount_nanos == 5
    use(code.code)
    with pytest.raises(Refused, match=f"{code.id} was used at 2.*cannot be changed"):
        codes.set_fields(db, code.id, {"amount": "1"}, "olga")
    assert codes.show(db, code.id).amount_nanos == 5


# Redeeming.


def test_a_code_puts_money_into_a_wallet_once(db, users, code, use):
    credit(db, "alice", Movement(10, "paid"))
    line = use(code.code.lower().replace("-", " "))
    assert line == Line(
        *(line.id, users["alice"], "redeem", 5, 15, code.id, f"redeem:{code.id}"),
        *(f"redeem code …{code.code[-4:]}", line.at_ms),
    )
    assert line in ledger(db, "alice")
    for user in ("alice", "bob"):
        with pytest.raises(Refused, match="used before, at 2"):
            use(code.code, user)
    assert balances(db) == {users["alice"]: 15, users["bob"]: 0}
    assert len(ledger(db, "alice")) == 2 and ledger(db, "bob") == []
    assert verify(db) == []


def test_each_reason_has_its_message(db, make, use, later):
    expiring_ms = now_ms() + MINUTE_MS
    expiring, disabled = make(expires_ms=expiring_ms)[0], make()[0]
    disable(db, [disabled.id], "olga")
    with pytest.raises(Refused, match="disabled at 2"):
        use(disabled.code)
    with pytest.raises(NotTaken, match="no such code") as unknown:
        use(make_code())
    with pytest.raises(NotTaken, match="mistyped") as mistyped:
        use(disabled.code[:-1] + "U")
    assert (unknown.value.reason, mistyped.value.reason) == ("unknown", "mistyped")
    assert disabled.code[:-1] not in str(mistyped.value)
    with pytest.raises(NotFound, match="nobody"):
        use(expiring.code, "nobody")
    later(MINUTE_MS)
    with pytest.raises(NotTaken, match="expired at 2") as expired:
        use(expiring.code)
    assert (expired.value.reason, expired.value.at_ms) == ("expired", expiring_ms)
    assert show(db, "alice").balance_nanos == 0 and ledger(db, "alice") == []


def test_codes_outlive_a_new_pepper(code, use, pepper):
    with pytest.raises(Refused, match="no such code"):
        use(code.code, "alice", "new")
    assert use(code.code, "alice", "new", pepper).reference == code.id


def test_a_refusal_of_the_wallet_leaves_the_code_unused(db, code, use):
    credit(db, "alice", Movement(MAX_BIGINT, "much"))
    with pytest.raises(Refused, match="too large"):
        use(code.code)
    change(db, 'DELETE FROM "wallets" WHERE "balance" > 0')
    with pytest.raises(NotFound, match="alice"):
        use(code.code)
    assert use(code.code, "bob").balance_after_nanos == 5


@pytest.mark.parametrize("booked", [True, False])
def test_a_lost_reply_to_the_commit_counts_once(db, code, use, monkeypatch, booked):
    real = codes.database.transaction
    tries = []

    def transact(db, work):
        tries.append(work)
        if len(tries) > 1:
            return real(db, work)
        if booked:
            real(db, work)
        raise OutcomeUnknown("lost during commit")

    monkeypatch.setattr(codes.database, "transaction", transact)
    monkeypatch.setattr("store.money.wallet.COMMIT_PAUSE_S", 0)
    line = use(code.code)
    assert ledger(db, "alice") == [line]
    assert show(db, "alice").balance_nanos == 5
    assert len(tries) == 2


def test_a_code_that_vanishes_meanwhile_is_none(db, code, use, monkeypatch):
    def take(db, code_id, user_id):
        execute(db, 'DELETE FROM "codes" WHERE "id" = ?', (code_id,))

    monkeypatch.setattr(codes, "_take", take)
    with pytest.raises(Refused, match="no such code"):
        use(code.code)


# Redeeming and changing at the same time.


@pytest.fixture
def beside(db):
    """Yield beside(work), which starts a thread that does this on a connection of its own; it
    returns the thread and the list for its result."""
    threads = []

    def start(work):
        ended = []

        def run():
            try:
                ended.append(work())
            except (Refused, NotFound) as error:
                ended.append(error)
            finally:
                discard(db)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return threads[-1], ended

    yield start
    for thread in threads:
        thread.join()


@every_change
def test_a_code_that_is_being_changed_cannot_be_used(db, code, use, beside, monkeypatch, alter):
    if alter is CHANGES["enable"]:
        disable(db, [code.id], "olga")
    real, redeemers = codes._hold, []

    def hold(db, *args):
        held = real(db, *args)
        redeemers.append(beside(lambda: use(code.code)))
        time.sleep(LONG_ENOUGH_S)
        return held

    monkeypatch.setattr(codes, "_hold", hold)
    assert alter(db, code.id)
    [(redeemer, ended)] = redeemers
    redeemer.join()
    [outcome] = ended
    _assert_used_or_not(db, code, outcome)


@every_change
def test_a_code_that_is_being_used_cannot_be_changed(db, code, use, beside, monkeypatch, alter):
    real, changers = codes._take, []

    def take(db, code_id, user_id):
        taken = real(db, code_id, user_id)
        changers.append(beside(lambda: alter(db, code_id)))
        time.sleep(LONG_ENOUGH_S)
        return taken

    monkeypatch.setattr(codes, "_take", take)
    assert use(code.code).amount_nanos == 5
    [(changer, ended)] = changers
    changer.join()
    assert "was used at" in str(ended[0])
    assert codes.show(db, code.id).amount_nanos == 5


@pytest.mark.databases("mariadb")  # SQLite lets nobody write in between
@every_change
def test_a_code_that_was_changed_a_moment_before_is_used_as_it_is(
    db, code, use, beside, monkeypatch, alter
):
    real = codes._take

    def take(db, code_id, user_id):
        changer, _ = beside(lambda: alter(db, code_id))
        changer.join()
        return real(db, code_id, user_id)

    monkeypatch.setattr(codes, "_take", take)
    try:
        outcome = use(code.code)
    except Refused as error:
        outcome = error
    _assert_used_or_not(db, code, outcome)


def _assert_used_or_not(db, code, outcome):
    """Check that a redeemer's outcome, the ledger and the code agree."""
    left = [one for one in list_codes(db) if one.id == code.id]
    lines = ledger(db, "alice")
    if isinstance(outcome, Refused):
        assert lines == []
        assert not left or (left[0].redeemed_ms is None and left[0].disabled_ms is not None)
    else:
        assert lines == [outcome]
        assert left[0].amount_nanos == outcome.amount_nanos and left[0].redeemed_ms is not None
        assert left[0].disabled_ms is None

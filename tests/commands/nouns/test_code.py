"""`code`: create, list, show, set, disable, enable, remove, redeem."""

import re
from datetime import UTC, datetime, timedelta

import pytest

FORM = re.compile(r"slc(-[0-9A-Z]{5}){5}")
EXPIRES = "2099-01-01T00:00:00Z"


@pytest.fixture
def made(filled):
    """Three codes, with their ids."""
    return filled.json("code", "create", "-n", "3", "--amount", "2.5", "--expires", EXPIRES)


def redeem(filled, code, user="alice"):
    return filled.json("code", "redeem", "--user", user, code)


def test_codes_are_printed_when_they_are_made_and_never_again(filled, made):
    assert len(made) == len({one["code"] for one in made}) == 3
    for one in made:
        assert list(one) == ["id", "code", "amount", "expires_at"]
        assert FORM.fullmatch(one["code"])
        assert (one["amount"], one["expires_at"]) == ("2.5", "2099-01-01T00:00:00.000Z")
    listed = filled.json("code", "list")
    assert {one["id"] for one in listed} == {one["id"] for one in made}
    assert [filled.json("code", "show", one["id"]) for one in listed] == listed
    shown = filled.ok("code", "list", "--json") + filled.ok("code", "list")
    for one in made:
        assert one["code"] not in shown
        assert f"slc-…{one['code'][-4:]}" in shown


def test_a_table_of_one_code(filled):
    ended = filled.run("code", "create", "--amount", "1")
    assert ended.code == 0
    head, line = ended.out.splitlines()
    assert head.split() == ["id", "code", "amount", "expires_at"]
    assert FORM.search(line) and line.endswith("-")
    assert "shown once" in ended.err


def test_an_empty_list_says_how_to_make_some(filled):
    ended = filled.run("code", "list")
    assert ended.code == 0 and "code create" in ended.err
    assert filled.json("code", "list") == []


def test_a_code_is_redeemed_once(filled, made):
    code = made[0]
    began = datetime.now(UTC) - timedelta(milliseconds=1)  # what is shown is cut to a millisecond
    line = redeem(filled, code["code"].lower())
    assert list(line) == ["user", "at", "kind", "amount", "balance_after", "reference", "reason"]
    assert (line["kind"], line["amount"], line["balance_after"]) == ("redeem", "2.5", "12.5")
    assert line["reference"] == code["id"]
    assert "used before" in filled.refused("code", "redeem", "--user", "alice", code["code"])
    assert filled.json("wallet", "show", "--user", "alice")["balance"] == "12.5"
    used = next(one for one in filled.json("code", "list") if one["id"] == code["id"])
    assert (used["status"], used["user"]) == ("used", "alice")
    redeemed, booked = map(datetime.fromisoformat, (used["redeemed_at"], line["at"]))
    assert began <= redeemed <= booked <= datetime.now(UTC)
    assert filled.ok("books", "verify")


def test_refusals_of_a_code_say_why(filled, made):
    first, second, third = (one["code"] for one in made)
    base = ("code", "redeem", "--user", "alice")
    assert "mistyped" in filled.refused(*base, first[:-1])
    assert filled.json("code", "disable", made[1]["id"]) == {"disabled": 1}
    assert "disabled at" in filled.refused(*base, second)
    with filled.store() as db:
        db.execute_sql('UPDATE "codes" SET "expires_ms" = 1')
    assert "expired" in filled.refused(*base, third)
    assert 'did you mean "alice"' in filled.refused("code", "redeem", "--user", "alise", first)
    with filled.store() as db:
        db.execute_sql('DELETE FROM "codes"')
    assert "no such code" in filled.refused(*base, first)
    assert filled.json("wallet", "show", "--user", "alice")["balance"] == "10"


def test_codes_are_disabled_enabled_and_removed_by_id(filled, made):
    first, second, third = (one["id"] for one in made)
    redeem(filled, made[2]["code"])
    for verb in ("disable", "enable", "remove"):
        assert third in filled.refused("code", verb, first, third)
        assert "no code" in filled.refused("code", verb, first, "x")
        assert "ID" in filled.misused("code", verb)
    assert filled.ok("code", "disable", first, second) == "2 disabled\n"
    assert filled.ok("code", "disable", first, second) == "nothing to change\n"
    by_id = {one["id"]: one for one in filled.json("code", "list")}
    words = {code_id: one["status"] for code_id, one in by_id.items()}
    assert words == {first: "disabled", second: "disabled", third: "used"}
    assert by_id[first]["disabled_at"].endswith("Z") and by_id[third]["disabled_at"] is None
    assert filled.json("code", "enable", first, second) == {"enabled": 2}
    assert filled.json("code", "show", first)["status"] == "active"
    assert filled.json("code", "show", first)["disabled_at"] is None
    assert filled.json("code", "remove", first) == {"removed": 1}
    assert "no code" in filled.refused("code", "remove", first)
    assert {one["id"] for one in filled.json("code", "list")} == {second, third}
    assert "no such code" in filled.refused("code", "redeem", "--user", "alice", made[0]["code"])
    assert "no command 'revoke'" in filled.misused("code", "revoke", second)


def test_one_code_is_shown(filled, made):
    shown = filled.json("code", "show", made[0]["id"])
    assert (shown["status"], shown["amount"]) == ("active", "2.5")
    assert made[0]["id"] in filled.ok("code", "show", made[0]["id"])
    assert "no code" in filled.refused("code", "show", "x")


def test_fields_of_a_code_are_set(filled, made):
    code_id = made[0]["id"]
    before = filled.json("code", "show", code_id)
    done = filled.json("code", "set", code_id, "amount=4", "expires_at=2098-01-01T02:00:00+02:00")
    assert done == {"changes": [{"kind": "code", "name": code_id, "action": "update"}], "keys": []}
    set_now = before | {"amount": "4", "expires_at": "2098-01-01T00:00:00.000Z"}
    assert filled.json("code", "show", code_id) == set_now
    assert filled.ok("code", "set", code_id, "amount=4") == "nothing to change\n"
    assert filled.ok("code", "set", code_id, "expires_at=") == f'code "{code_id}" changed\n'
    assert filled.json("code", "show", code_id) == set_now | {"expires_at": None}
    assert redeem(filled, made[0]["code"])["amount"] == "4"
    assert "was used at" in filled.refused("code", "set", code_id, "amount=5")


def test_what_cannot_be_set_is_refused(filled, made):
    base = ("code", "set", made[0]["id"])
    assert 'did you mean "expires_at"' in filled.refused(*base, "expires=")
    assert "must be a time" in filled.refused(*base, "expires_at=2098-01-01T00:00:00")
    assert "must not be negative" in filled.refused(*base, "amount=-1")
    assert "no code" in filled.refused("code", "set", "x", "amount=1")
    assert "FIELD=VALUE" in filled.misused(*base)
    assert "twice" in filled.misused(*base, "amount=1", "amount=2")
    assert filled.json("code", "show", made[0]["id"])["amount"] == "2.5"


@pytest.mark.parametrize("expires", ["tomorrow", "2027-01-01", "2027-01-01T00:00:00", "24h"])
def test_what_is_no_time_is_wrong_usage(filled, expires):
    said = filled.misused("code", "create", "--amount", "1", "--expires", expires)
    assert "must be a time" in said


def test_what_cannot_be_made_is_refused(filled):
    base = ("code", "create", "--amount")
    assert "from 1 to 1000" in filled.refused(*base, "1", "-n", "1001")
    assert "is over" in filled.refused(*base, "1", "--expires", "2020-01-01T00:00:00Z")
    assert "greater than 0" in filled.refused(*base, "0")
    assert "--amount" in filled.misused("code", "create")
    assert filled.json("code", "list") == []


def test_who_makes_codes_is_in_the_audit_log(filled, monkeypatch):
    monkeypatch.setenv("LOGNAME", "olga")
    code = filled.json("code", "create", "--amount", "1")[0]
    filled.ok("code", "set", code["id"], "amount=2")
    redeem(filled, code["code"])
    with filled.store() as db:
        query = 'SELECT "actor", "action", "kind" FROM "audit_log" WHERE "actor" = \'cli:olga\''
        acts = db.execute_sql(query).fetchall()
    assert sorted(acts) == [
        ("cli:olga", "create", "code"),
        ("cli:olga", "redeem", "wallet"),
        ("cli:olga", "update", "code"),
    ]

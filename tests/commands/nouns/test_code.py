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


def test_a_table_of_one_code_and_of_none(filled):
    ended = filled.run("code", "list")
    assert ended.code == 0 and "code create" in ended.err
    assert filled.json("code", "list") == []
    ended = filled.run("code", "create", "--amount", "1")
    assert ended.code == 0
    head, line = ended.out.splitlines()
    assert head.split() == ["id", "code", "amount", "expires_at"]
    assert FORM.search(line) and line.endswith("-")
    assert "shown once" in ended.err


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


@pytest.mark.parametrize("expires", ["tomorrow", "2027-01-01", "2027-01-01T00:00:00", "24h"])
def test_what_is_no_time_is_wrong_usage(filled, expires):
    text = filled.misused("code", "create", "--amount", "1", "--expires", expires)
    assert "must be a time" in text

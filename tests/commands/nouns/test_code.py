"""`code`: create, list, show, set, disable, enable, remove, redeem."""

import re

import pytest

FORM = re.compile(r"slc(-[0-9A-Z]{5}){5}")
EXPIRES = "2099-01-01T00:00:00Z"


@pytest.fixture
def made(filled):
    """Create three codes; return them with their ids."""
    return filled.json("code", "create", "-n", "3", "--amount", "2.5", "--expires", EXPIRES)


def test_codes_are_printed_when_they_are_made_and_never_again(filled, made):
    assert len({one["code"] for one in made}) == 3
    for one in made:
        assert list(one) == ["id", "code", "amount", "expires_at"] and FORM.fullmatch(one["code"])
        assert (one["amount"], one["expires_at"]) == ("2.5", "2099-01-01T00:00:00.000Z")
    listed = filled.json("code", "list")
    assert {one["id"] for one in listed} == {one["id"] for one in made}
    assert [filled.json("code", "show", one["id"]) for one in listed] == listed
    shown = filled.ok("code", "list", "--json") + filled.ok("code", "list")
    for one in made:
        assert one["code"] not in shown and f"slc-…{one['code'][-4:]}" in shown
    ended = filled.run("code", "create", "--amount", "1")
    head, line = ended.out.splitlines()
    assert head.split() == ["id", "code", "amount", "expires_at"]
    assert FORM.search(line) and "shown once" in ended.err


def test_a_code_is_redeemed_once(filled, made):
    args = ("code", "redeem", "--user", "alice", made[0]["code"].lower())
    line = filled.json(*args)
    expected = {"user": "alice", "kind": "redeem", "amount": "2.5", "balance_after": "12.5"}
    expected |= {"at": line["at"], "reference": made[0]["id"], "reason": line["reason"]}
    assert line == expected
    assert "used before" in filled.refused(*args)
    used = filled.json("code", "show", made[0]["id"])
    assert (used["status"], used["user"]) == ("used", "alice")
    assert "was used at" in filled.refused("code", "set", made[0]["id"], "amount=5")


def test_codes_are_changed_and_removed_by_id(filled, made):
    first, second, _ = (one["id"] for one in made)
    for verb in ("disable", "enable", "remove"):
        assert "no code" in filled.refused("code", verb, first, "x")
        assert "ID" in filled.misused("code", verb)
    assert filled.ok("code", "disable", first, second) == "2 disabled\n"
    assert filled.ok("code", "disable", first, second) == "nothing to change\n"
    assert filled.json("code", "enable", first, second) == {"enabled": 2}
    assert filled.json("code", "remove", first) == {"removed": 1}
    done = filled.json("code", "set", second, "amount=4", "expires_at=")
    assert done == {"changes": [{"kind": "code", "name": second, "action": "update"}], "keys": []}
    assert filled.ok("code", "set", second, "amount=4") == "nothing to change\n"
    shown = filled.json("code", "show", second)
    assert (shown["amount"], shown["expires_at"], shown["status"]) == ("4", None, "active")


def test_what_is_no_time_is_wrong_usage(filled):
    text = filled.misused("code", "create", "--amount", "1", "--expires", "2027-01-01")
    assert "must be a time" in text

"""`books verify`."""

import json


def test_right_books(filled):
    assert filled.ok("books", "verify") == "the books are right\n"
    assert filled.json("books", "verify") == {"ok": True, "faults": []}


def test_a_wrong_balance_is_told_and_ends_with_1(filled):
    with filled.store() as db:
        db.execute_sql('UPDATE "wallets" SET "balance" = "balance" + 1')
    ended = filled.run("books", "verify")
    assert ended.code == 1 and "alice" in ended.out
    ended = filled.run("books", "verify", "--json")
    said = json.loads(ended.out)
    assert ended.code == 1 and said["ok"] is False and "alice" in said["faults"][0]

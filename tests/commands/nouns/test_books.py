"""`books verify`."""

import json

from tests.commands.conftest import record


def test_a_wrong_balance_ends_with_1(filled):
    place = filled.folder / "sluice.db"
    assert filled.ok("books", "verify") == f"the books of {place} are correct\n"
    assert filled.json("books", "verify") == {"ok": True, "store": str(place), "faults": []}
    with filled.store() as db:
        db.execute_sql('UPDATE "wallets" SET "balance" = "balance" + 1')
    ended = filled.run("books", "verify")
    assert ended.code == 1 and "alice" in ended.out
    answer = json.loads(filled.run("books", "verify", "--json").out)
    assert answer["ok"] is False and "alice" in answer["faults"][0]


def test_a_lost_node_is_released(filled):
    ended = filled.run("books", "release-node", "web-9")
    assert ended.code == 1 and "web-9" in ended.err
    with filled.store() as db:
        db.execute_sql("INSERT INTO \"nodes\" VALUES ('web-1', 1)")
        fields = '"id", "node", "offset", "opened_ms"'
        db.execute_sql(f"INSERT INTO \"journals\" ({fields}) VALUES ('J', 'web-1', 0, 1)")
        db.execute_sql("INSERT INTO \"leases\" VALUES ('A', 'J', 1500000000, 0, 0)")
    answer = filled.json("books", "release-node", "web-1")
    assert answer == {"node": "web-1", "leases": 1, "amount": "1.5"}
    again = filled.ok("books", "release-node", "web-1")
    assert again == "released 0 leases of web-1, 0 in total\n"


def test_days_before_a_day_may_be_left_out(filled):
    with filled.store() as db:
        ((user_id,),) = db.execute_sql('SELECT "id" FROM "users"').fetchall()
    filled.write_records(record(1, user_id=user_id))  # charged, but in no ledger
    assert "20261118" in filled.run("books", "verify", "--since", "2026-11-18").out
    filled.ok("books", "verify", "--since", "2026-11-19")

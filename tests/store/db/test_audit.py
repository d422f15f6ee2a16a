"""Audit rows: complete, in order, without secrets."""

import pytest

from store.db import audit
from store.db.database import database_ms, transaction

pytestmark = pytest.mark.databases("sqlite")


def test_rows_come_back_newest_first_with_secrets_masked(database):
    before = {"keys": ["sk-1", "sk-2"], "password": None, "role": "member"}
    after = {"secret": "sk-3", "password": "pw", "role": "admin"}
    acts = [
        audit.Act("tester", "create", "user", "ä", None, {"role": "member"}),
        audit.Act("tester", "update", "user", "ä", before, after),
    ]
    for act in acts:
        transaction(database, lambda act=act: audit.write(database, act))
        while database_ms(database) == audit.entries(database, 1)[0]["at_ms"]:
            pass
    rows = audit.entries(database, 10)
    assert [row["action"] for row in rows] == ["update", "create"]
    assert rows[0]["before"] == {"keys": ["***", "***"], "password": None, "role": "member"}
    assert rows[0]["after"] == {"secret": "***", "password": "***", "role": "admin"}
    assert rows[1]["before"] is None
    assert rows[1]["actor"] == "tester" and rows[1]["name"] == "ä"
    assert len(audit.entries(database, 1)) == 1


def test_rows_are_found_by_actor_kind_name_and_time_page_by_page(database):
    for number in range(6):
        act = audit.Act(f"actor-{number % 2}", "update", "group", f"g{number % 3}")
        audit.write_alone(database, act)
    everything = audit.entries(database, 10)
    assert len(everything) == 6
    page = audit.entries(database, 4)
    rest = audit.entries(database, 4, before=page[-1]["id"])
    assert page + rest == everything
    expected = audit.AuditFilter(actor="actor-1", kind="group", name="g1")
    assert [row["name"] for row in audit.entries(database, 10, expected)] == ["g1"]
    assert audit.entries(database, 10, audit.AuditFilter(kind="user")) == []
    later = audit.AuditFilter(since_ms=everything[0]["at_ms"] + 60_000)
    assert audit.entries(database, 10, later) == []


def test_the_callers_address_is_kept_for_as_long_as_it_asks(database):
    token = audit.caller.set("2001:db8::1")
    audit.write_alone(database, audit.Act("boss", "test", "channel", "main"))
    audit.caller.reset(token)
    audit.write_alone(database, audit.Act("cli", "test", "channel", "spare"))
    addresses = {row["name"]: row["address"] for row in audit.entries(database, 5)}
    assert addresses == {"main": "2001:db8::1", "spare": None}


def test_every_row_comes_once_whatever_the_page(database, monkeypatch):
    for number in range(6):
        audit.write_alone(database, audit.Act("tester", "update", "group", f"g{number % 2}"))
    everything = audit.entries(database, 10)
    for rows in (1, 3, 4, 6, 7):
        monkeypatch.setattr(audit, "PAGE_ROWS", rows)
        assert list(audit.every_entry(database, audit.AuditFilter())) == everything
        expected = audit.AuditFilter(name="g1")
        assert list(audit.every_entry(database, expected)) == audit.entries(database, 10, expected)

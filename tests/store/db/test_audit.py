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

"""The upkeep of a running gateway: one of two workers does it, `status` shows it."""

import json
import re
from datetime import datetime

import pytest

from store.db.database import database_ms, discard, open_database, transaction
from store.db.tables.hub import Session
from tests.support.client import wait_until
from tests.support.gateway import Gateway

FIRST_RUN_WITHIN_S = 40


@pytest.fixture
def gateway(tmp_path):
    gateway = Gateway(tmp_path / "node", {"server.workers": 2, "usage.keep_days": 30})
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.close()


def test_one_worker_does_it_and_both_know(gateway):
    db = open_database(f"sqlite:///{gateway.folder}/sluice.db")
    row = {"digest": b"d" * 32, "id": "S", "user_id": "U", "address": "", "agent": ""}
    insert = Session.insert({**row, "created_ms": 0, "seen_ms": database_ms(db)})
    transaction(db, lambda: insert.execute(db))
    discard(db)

    def shown():
        found = json.loads(gateway.run("status", "--json"))
        seen = [worker.get("upkeep") for worker in found["workers"]]
        done = all(upkeep and upkeep["ended_at"] for upkeep in seen)
        return found if done else None

    found = wait_until(shown, FIRST_RUN_WITHIN_S, step_s=1)
    upkeep = found["upkeep"]
    assert upkeep["removed"] == {"sessions": 1} and upkeep["trouble"] is None
    assert upkeep["node"] == found["node"] and upkeep["ended_at"] < upkeep["next_at"]
    assert [worker["upkeep"] for worker in found["workers"]] == [upkeep, upkeep]
    assert "removed 1 sessions; next" in gateway.run("status")
    _, _, text = gateway.call("GET", "/metrics", port=gateway.ops_port)
    ended_s = datetime.fromisoformat(upkeep["ended_at"]).timestamp()
    lines = dict(re.findall(r"^(sluice_upkeep_\w+) (\S+)$", text.decode(), re.M))
    assert float(lines["sluice_upkeep_timestamp_seconds"]) == pytest.approx(ended_s, abs=1)
    assert lines["sluice_upkeep_success"] == "1"
    assert gateway.log().count("upkeep: removed sessions 1") == 1
    gateway.run("books", "verify")

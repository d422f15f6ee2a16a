"""`nodes`: as an operator of several nodes sees it."""

from store.db.database import execute, transaction
from store.db.nodes import Process, note_seen

INSERT = 'INSERT INTO "journals" ("id", "node", "offset", "opened_ms") VALUES (?, ?, 0, 1)'


def test_versions_clocks_readiness_and_journals(filled):
    with filled.store() as db:
        for name, version, why in (("web-1", "1.0", ""), ("web-2", "2.0", "draining")):
            transaction(db, lambda name=name: execute(db, INSERT, (name, name)))
            note_seen(db, name, name, Process(version, 7, why))
        note_seen(db, "web-3")
        db.execute_sql('UPDATE "journals" SET "lead_ms" = 300000 WHERE "id" = \'web-2\'')
        db.execute_sql('UPDATE "nodes" SET "seen_ms" = 1 WHERE "name" = \'web-3\'')
    rows = {row["node"]: row for row in filled.json("nodes")}
    assert [row["state"] for row in rows.values()] == ["ready", "not ready", "away"]
    assert rows["web-1"]["clock_behind_ms"] == 0 and rows["web-1"]["workers"] == "1 of 1"
    assert (rows["web-2"]["clock_behind_ms"], rows["web-2"]["why"]) == (300_000, "draining")
    assert (rows["web-2"]["version"], rows["web-2"]["backlog_bytes"]) == ("2.0", 7)
    ended = filled.run("nodes")
    assert ended.code == 0 and "nodes run different versions: 1.0, 2.0" in ended.err
    assert "web-3" in ended.out and "1970-01-01" in ended.out


def test_no_node_yet(filled):
    assert filled.json("nodes") == []

"""The reports of a store's nodes."""

import pytest

from store.db import nodes
from store.db.nodes import Process, hanging, note_seen, serving, states
from store.db.tables.usage import JournalRow
from tests.support.stores import insert

pytestmark = pytest.mark.databases("sqlite")


def journal(db, journal_id, node, finished_ms=None):
    row = {"node": node, "offset": 0, "opened_ms": 1, "finished_ms": finished_ms}
    insert(db, "journals", id=journal_id, **row)


def test_every_node_with_what_its_processes_say(database):
    for name in "ab":
        journal(database, name, "web-1")
    journal(database, "c", "web-1", finished_ms=5)
    journal(database, "d", "web-2")
    note_seen(database, "web-1", "a", Process("2.0", 70, ""))
    note_seen(database, "web-1", "b", Process("1.9", 30, "draining"))
    note_seen(database, "web-1", "c", Process("1.0", 900, "ended"))
    note_seen(database, "web-2")
    one, two = states(database)
    assert (one.name, one.alive, one.versions) == ("web-1", True, ["1.9", "2.0"])
    assert (one.processes, one.ready, one.not_ready) == (2, 1, ["draining"])
    assert one.backlog_bytes == 100 and abs(one.lead_ms) < 60_000
    assert (two.name, two.alive, two.processes, two.lead_ms) == ("web-2", True, 0, None)


def test_a_process_that_was_killed_is_not_counted_but_its_journal_is(database, monkeypatch):
    journal(database, "a", "web-1")
    note_seen(database, "web-1", "a", Process("2.0", 70, ""))
    monkeypatch.setattr(nodes, "NODE_ALIVE_MS", -60_000)
    [one] = states(database)
    assert not one.alive and one.processes == one.ready == 0 and one.backlog_bytes == 70
    monkeypatch.undo()
    note_seen(database, "web-1", "a", Process("2.0", 0, "x" * 500))
    assert states(database)[0].not_ready == ["x" * 128]


def test_nodes_serve_while_a_process_of_theirs_takes_calls(database, monkeypatch):
    assert serving(database) == 0
    for name, node in (("a", "web-1"), ("b", "web-1"), ("c", "web-2"), ("d", "web-3")):
        journal(database, name, node, finished_ms=5 if name == "d" else None)
        note_seen(database, node, name, Process("2.0", 0, "draining" if name == "b" else ""))
    assert serving(database) == 2
    note_seen(database, "web-1", "a", Process("2.0", 0, "draining"))
    assert serving(database) == 1
    monkeypatch.setattr(nodes, "SERVING_MS", -60_000)
    assert serving(database) == 0


def test_processes_that_hang_are_counted_until_another_has_ended_their_work(database, monkeypatch):
    rows = (("a", "web-1", ""), ("b", "web-1", nodes.HANGING), ("c", "web-2", "draining"))
    for name, node, why in rows:
        journal(database, name, node)
        note_seen(database, node, name, Process("2.0", 0, why))
    assert hanging(database) == [("web-1", 1)]
    monkeypatch.setattr(nodes, "SERVING_MS", -1000)  # none of them has reported since
    assert hanging(database) == [("web-1", 2), ("web-2", 1)]
    JournalRow.update(finished_ms=5).execute(database)
    assert hanging(database) == []

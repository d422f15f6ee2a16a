"""Suspended keys: one row for all workers, and every way in which it is removed."""

import logging

import pytest

from store.admin.export import list_objects, show
from store.catalog import suspended_keys
from store.catalog.catalog import load_snapshot
from store.catalog.suspended_keys import KeyReports, SuspendedKey, lift, reinstate, suspend
from store.db import audit
from store.db.changes import CATALOG, current_version, read_changes
from store.values.errors import Refused, StoreUnavailable

AT_MS = 1_800_000_000_000
TEN_MINUTES_MS = 600_000


@pytest.fixture
def channel(applied, database, cipher):
    channels = load_snapshot(database, cipher).channels
    return next(one for one in channels if one.name == "openai-main")


@pytest.fixture
def aside(channel):
    """Return aside(key, at), which makes a worker's row."""

    def make(key=0, at_ms=AT_MS, for_ms=TEN_MINUTES_MS, times=1):
        name = (channel.id, channel.fingerprints[key])
        return SuspendedKey(*name, at_ms, at_ms + for_ms, times, "upstream status 401")

    return make


def rows(database):
    return list(suspended_keys.load_suspended_keys(database).values())


def test_the_first_worker_tells_all_others(database, aside, channel, cipher):
    before = current_version(database)
    assert suspend(database, aside())
    assert suspend(database, aside())  # the first answer was lost
    assert not suspend(database, aside(at_ms=AT_MS + 50))  # another worker, a moment later
    assert rows(database) == [aside()]
    seen = read_changes(database, before).changes
    assert {(one.kind, one.ref) for one in seen} == {(CATALOG, channel.id)} and len(seen) == 1
    assert load_snapshot(database, cipher).suspended_keys == {aside().name: aside()}


def test_a_probe_that_is_refused_makes_it_longer(database, aside):
    suspend(database, aside())
    later = aside(at_ms=AT_MS + TEN_MINUTES_MS, for_ms=2 * TEN_MINUTES_MS, times=2)
    assert suspend(database, later)
    [row] = rows(database)
    assert (row.since_ms, row.until_ms, row.times) == (AT_MS, later.until_ms, 2)


def test_a_row_of_a_clock_that_was_ahead_is_replaced(database, aside):
    suspend(database, aside(at_ms=AT_MS + 10 * suspended_keys.MAX_SUSPENDED_MS))
    assert suspend(database, aside())
    assert rows(database) == [aside()]


def test_a_key_that_answers_is_taken_back_once(database, aside):
    suspend(database, aside(0))
    suspend(database, aside(1))
    before = current_version(database)
    assert lift(database, aside(0).name)
    assert not lift(database, aside(0).name)
    assert rows(database) == [aside(1)]
    assert current_version(database) == before + 1


def test_what_the_channel_has_no_more_is_not_put_aside(database, aside, editor):
    suspend(database, aside(0))
    suspend(database, aside(1))
    editor.change("channel", "openai-main", {"priority": "3"})
    assert len(rows(database)) == 2
    editor.change("channel", "openai-main", {"keys": "sk-new,sk-upstream-2"})
    assert rows(database) == [aside(1)]
    assert not suspend(database, aside(0))
    editor.remove("channel", "openai-main")
    assert rows(database) == [] and not suspend(database, aside(1))


def test_a_channel_without_keys(database, editor, applied):
    editor.change("channel", "anthropic-main", {"keys": ""})
    bare = show(database, "channel", "anthropic-main")
    row = SuspendedKey(bare["id"], "", AT_MS, AT_MS + 5, 1, "upstream status 403")
    assert suspend(database, row) and rows(database) == [row]
    assert suspended_keys.with_suspended_keys(database, [bare])[0]["keys_aside"][0]["position"] == 1
    assert reinstate(database, bare, 1, "tester") == 1
    editor.remove("channel", "anthropic-main")
    assert not suspend(database, row)


def test_operators_see_them_without_the_key(database, aside, cipher):
    suspend(database, aside(1))
    none, shown = suspended_keys.with_suspended_keys(database, list_objects(database, "channel"))
    assert none["keys_aside"] == []
    row = {"position": 2, "key": aside(1).fingerprint[:8], "times": 1}
    row |= {"since": "2027-01-15T08:00:00Z", "until": "2027-01-15T08:10:00Z"}
    assert shown["keys_aside"] == [row | {"reason": "upstream status 401"}]


def test_an_operator_takes_them_back(database, aside):
    for key in (0, 1):
        suspend(database, aside(key))
    shown = show(database, "channel", "openai-main")
    assert reinstate(database, shown, 2, "tester") == 1
    assert rows(database) == [aside(0)]
    [act] = audit.entries(database, 1)
    assert (act["actor"], act["action"], act["kind"]) == ("tester", "reinstate", "channel")
    assert act["before"]["keys_aside"][0]["position"] == 2
    with pytest.raises(Refused, match='"openai-main": key 2 is not suspended'):
        reinstate(database, shown, 2, "tester")
    before = current_version(database)
    suspend(database, aside(1))
    assert reinstate(database, shown, None, "tester") == 2
    assert rows(database) == [] and current_version(database) == before + 2
    with pytest.raises(Refused, match="no key is suspended"):
        reinstate(database, shown, None, "tester")


def test_news_are_told_once_and_wait_for_the_store(database, aside, caplog, monkeypatch):
    news = KeyReports(lambda: False)
    news.suspend(aside(0), "first")
    news.suspend(aside(0, at_ms=AT_MS + 7), "second worker")
    news.lift(aside(1).name)
    with monkeypatch.context() as patch:
        patch.setattr("store.catalog.suspended_keys.suspend", _away)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                news.write(database)
    assert caplog.messages == [] and rows(database) == []
    news.write(database)
    assert rows(database) == [aside(0)] and caplog.messages == ["first"]
    news.lift(aside(0).name)
    news.suspend(aside(0), "")
    news.suspend(aside(1), "")
    with monkeypatch.context() as patch:  # a row that cannot be written does not block others
        patch.setattr("store.catalog.suspended_keys.suspend", lambda db, row: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            news.write(database)
    news.write(database)
    assert rows(database) == [aside(1)]


def _away(db, row):
    raise StoreUnavailable("away")


def test_without_a_store_the_operator_is_told_at_once(database, aside, caplog):
    away = [True]
    news = KeyReports(lambda: away[0])
    with caplog.at_level(logging.ERROR):
        news.suspend(aside(), "refused")
        assert caplog.messages == ["refused"]
        away[0] = False
        news.write(database)
    assert rows(database) == [aside()] and caplog.messages == ["refused"]


def test_news_are_bounded(database):
    news = KeyReports(lambda: False)
    for number in range(suspended_keys.MAX_REPORTS + 5):
        news.lift(("no such channel", str(number)))
    assert len(news._waiting) == suspended_keys.MAX_REPORTS

"""Keys that a worker reads into memory at its start, and their order; on both databases."""

import pytest

from store.catalog import keys
from store.catalog.keys import Rotation, find_key, revoke, rotate, set_key_enabled
from store.db import database as database_module
from store.db.database import database_ms
from store.db.tables.users import ApiKey
from store.values.key_secrets import digests
from tests.support.usage_records import DAY_MS, record_at, store

NAMES = ("k1", "k2", "k3", "k4", "k5", "k6")  # the last one is the newest


@pytest.fixture(autouse=True)
def small_portions(monkeypatch):
    monkeypatch.setattr(database_module, "PORTION", 2)
    monkeypatch.setattr(keys, "REST_S", 0)


@pytest.fixture
def made(database, editor, applied):
    """Return name -> (id, secret) of bob's keys; alice's and bob's first keys are older."""
    made = {}
    ApiKey.update(created_ms=0).execute(database)
    for age, name in enumerate(NAMES, 1):
        (key,) = editor.create("key", f"bob/{name}", {"group": "plain"}).keys
        made[name] = key.id, key.secret
        ApiKey.update(created_ms=age).where(ApiKey.id == key.id).execute(database)
    return made


def called(db, made, *calls):
    """Record calls: (name of the key, days ago)."""
    at_ms = database_ms(db)
    ids = {name: key_id for name, (key_id, _) in made.items()}
    calls = [(ids.get(name, "removed"), at_ms - days * DAY_MS) for name, days in calls]
    store(db, [record_at(began_ms, key_id=key_id) for key_id, began_ms in calls], at_ms)


def read(db, limit=100):
    portions = list(keys.recent_keys(db, limit))
    assert all(len({entry.id for _, entry in portion}) <= 2 for portion in portions)
    return [key for portion in portions for key in portion]


def names(db, limit=100):
    return [entry.name for _, entry in read(db, limit)]


def test_last_used_first_then_the_newest(database, made):
    assert names(database)[:6] == [*reversed(NAMES)]
    called(database, made, ("k2", 300), ("k3", 1), ("k3", 7), ("k1", 1), ("k1", 1), ("gone", 0))
    assert names(database) == ["k1", "k3", "k2", "k6", "k5", "k4", *names(database)[6:]]
    assert sorted(names(database)[6:]) == ["desk", "laptop"]
    assert names(database, 4) == ["k1", "k3", "k2"]  # one of the four has been removed


def test_they_are_read_as_a_look_up_reads_them(database, made, pepper):
    set_key_enabled(database, made["k1"][0], False, "tester")
    fresh = rotate(database, made["k2"][0], Rotation([pepper], overlap_s=60), "tester")
    revoke(database, made["k3"][0], "tester")
    found = dict(read(database))
    secrets = [secret for name, (_, secret) in made.items() if name != "k3"]
    for secret in [*secrets, fresh]:
        (digest,) = digests(secret, [pepper])
        looked_up = find_key(database, [digest])
        ahead_ms = abs((looked_up.valid_until_ms or 0) - (found[digest].valid_until_ms or 0))
        assert ahead_ms < 1000
        assert (found[digest].id, found[digest].disabled) == (looked_up.id, looked_up.disabled)
    assert found[digests(made["k1"][1], [pepper])[0]].disabled
    assert digests(made["k3"][1], [pepper])[0] not in found

"""The key cache: hits without waiting, one look-up at a time, consistent with the change log."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from store.catalog import key_cache
from store.catalog.key_cache import MISS, KeyCache
from store.catalog.keys import KeyEntry
from store.db.changes import CATALOG, KEYS, Changes, LoggedChange
from store.values.errors import StoreUnavailable
from store.values.key_secrets import digest, make_secret

PEPPERS = ["new pepper", "old pepper"]
SECRET = "sk-client-0123456789"
OTHER = "sk-client-9876543210"


def entry(key_id="k1", user_id="u1", **fields):
    values = {"id": key_id, "user_id": user_id, "name": "laptop", "user": "alice"}
    values |= {"group": "default", "disabled": False, "revoked": False, "expires_ms": None}
    values |= {"models": None, "networks": (), "spend_order": "plan_first"}
    return KeyEntry(**(values | {"valid_until_ms": None} | fields))


def changed(*refs, kind=KEYS, complete=True):
    log = tuple(LoggedChange(n, kind, ref) for n, ref in enumerate(refs))
    return Changes(len(log), log, complete)


class Store:
    """A replacement of the database: answers by secret, counts, and can be made to fail or wait."""

    def __init__(self):
        self.known = {}
        self.calls = []
        self.away = False
        self.gate = threading.Event()
        self.gate.set()

    def put(self, secret, key, pepper=PEPPERS[0]):
        self.known[digest(secret, pepper)] = key

    def load(self, wanted):
        found = next((self.known[d] for d in wanted if d in self.known), None)
        self.calls.append(wanted)
        self.gate.wait(10)
        if self.away:
            raise StoreUnavailable("away")
        return found


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def executor(store):
    with ThreadPoolExecutor(4) as pool:
        yield pool
        store.gate.set()


@pytest.fixture
def cache(store, clock, executor):
    return KeyCache(store.load, executor, PEPPERS, clock)


async def until(condition):
    while not condition():  # noqa: ASYNC110 - a poll is what a test can do from outside
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("pepper", PEPPERS)
async def test_a_key_is_looked_up_once_and_then_known(cache, store, pepper):
    store.put(SECRET, entry(), pepper)
    assert cache.peek(SECRET) is MISS
    assert await cache.get(SECRET) == entry()
    assert cache.peek(SECRET) == entry()
    assert await cache.get(SECRET) == entry()
    assert len(store.calls) == 1
    assert store.calls[0] == [digest(SECRET, pepper) for pepper in PEPPERS]


@pytest.mark.parametrize("leaving", [0, 1])
async def test_many_callers_make_one_look_up_and_who_leaves_takes_nobody_along(
    cache, store, leaving
):
    store.put(SECRET, entry())
    store.gate.clear()
    callers = [asyncio.create_task(cache.get(SECRET)) for _ in range(50)]
    await until(lambda: store.calls)
    for caller in callers[:leaving]:
        caller.cancel()
    await asyncio.sleep(0)
    store.gate.set()
    assert await asyncio.gather(*callers[leaving:]) == [entry()] * (50 - leaving)
    assert all(caller.cancelled() for caller in callers[:leaving])
    assert len(store.calls) == 1


async def test_an_unknown_key_is_remembered_for_a_second(cache, store, clock):
    assert await cache.get(SECRET) is None
    assert cache.peek(SECRET) is None
    assert await cache.get(SECRET) is None
    assert len(store.calls) == 1
    clock.now -= 600_000  # a clock that is set back does not prolong anything
    assert cache.peek(SECRET) is MISS
    clock.now += 600_000
    store.put(SECRET, entry())
    clock.now += key_cache.UNKNOWN_FOR_MS
    assert await cache.get(SECRET) == entry()


@pytest.mark.parametrize(
    "secret",
    ["", "short", "x" * 201, "\udc80" * 20, pytest.param(make_secret()[:-1] + "_", id="check")],
)
async def test_what_can_be_no_key_never_asks_the_store(cache, store, secret):
    assert cache.peek(secret) is None
    assert await cache.get(secret) is None
    assert store.calls == []


@pytest.mark.parametrize("ref", ["k1", "u1"])
async def test_a_change_of_key_or_user_is_taken_in(cache, store, ref):
    store.put(SECRET, entry())
    store.put(OTHER, entry("k2", "u2"))
    await cache.get(SECRET)
    await cache.get(OTHER)
    cache.apply_changes(changed(ref, kind=CATALOG))
    cache.apply_changes(changed())
    assert cache.peek(SECRET) == entry()
    store.put(SECRET, entry(disabled=True))
    cache.apply_changes(changed(ref, "unknown"))
    assert cache.peek(SECRET) is MISS
    assert cache.peek(OTHER) == entry("k2", "u2")
    assert (await cache.get(SECRET)).disabled
    assert cache.peek(SECRET).disabled
    store.known.clear()
    cache.apply_changes(changed(ref))
    assert await cache.get(SECRET) is None and cache.peek(SECRET) is None


async def test_an_incomplete_log_makes_everything_stale_and_a_new_key_is_seen_at_once(cache, store):
    store.put(SECRET, entry())
    await cache.get(SECRET)
    assert await cache.get(OTHER) is None
    cache.apply_changes(changed(complete=False))
    assert cache.peek(SECRET) is cache.peek(OTHER) is MISS
    assert await cache.get(OTHER) is None
    store.put(OTHER, entry())
    cache.apply_changes(changed("k1"))
    assert await cache.get(OTHER) == entry()


async def test_what_was_read_before_a_change_is_not_kept(cache, store):
    store.put(SECRET, entry())
    store.gate.clear()
    reader = asyncio.create_task(cache.get(SECRET))
    await until(lambda: store.calls)
    store.put(SECRET, entry(disabled=True))
    cache.apply_changes(changed("k1"))
    store.gate.set()
    await reader
    assert cache.peek(SECRET) is MISS
    assert (await cache.get(SECRET)).disabled


async def test_known_keys_serve_on_while_the_store_is_away(cache, store, clock):
    store.put(SECRET, entry())
    await cache.get(SECRET)
    store.away = True
    assert cache.peek(SECRET) == entry()
    cache.apply_changes(changed("k1"))
    assert await cache.get(SECRET) == entry()
    asked = len(store.calls)
    assert cache.peek(SECRET) == entry()
    assert len(store.calls) == asked
    clock.now += key_cache.STALE_RETRY_MS
    assert cache.peek(SECRET) is MISS
    store.away = False
    store.put(SECRET, entry(revoked=True))
    assert (await cache.get(SECRET)).revoked


async def test_a_key_never_seen_is_unavailable_not_unknown(cache, store):
    store.away = True
    with pytest.raises(StoreUnavailable):
        await cache.get(SECRET)
    store.away = False
    store.put(SECRET, entry())
    assert await cache.get(SECRET) == entry()


async def test_a_frozen_store_keeps_nobody_waiting(cache, store, monkeypatch):
    store.put(SECRET, entry())
    await cache.get(SECRET)
    monkeypatch.setattr(key_cache, "LOAD_WAIT_S", 0.02)
    monkeypatch.setattr(key_cache, "STALE_WAIT_S", 0.01)
    store.gate.clear()
    cache.apply_changes(changed("k1"))
    assert await cache.get(SECRET) == entry()
    with pytest.raises(StoreUnavailable):
        await cache.get(OTHER)
    store.gate.set()
    await until(lambda: not cache._flights)


async def test_a_rotated_secret_ends_with_its_overlap(cache, store, clock):
    until_ms = clock.now + 5_000
    store.put(SECRET, entry(valid_until_ms=until_ms))
    assert (await cache.get(SECRET)).valid_until_ms == until_ms
    clock.now = until_ms - 1
    assert cache.peek(SECRET) is not None
    clock.now = until_ms
    assert cache.peek(SECRET) is None
    assert await cache.get(SECRET) is None


async def test_the_least_used_keys_give_way(store, clock, executor):
    cache = KeyCache(store.load, executor, PEPPERS, clock, limit=2)
    secrets = [f"sk-client-000000000{n}" for n in range(3)]
    for n, secret in enumerate(secrets):
        store.put(secret, entry(f"k{n}", "shared user"))
    await cache.get(secrets[0])
    await cache.get(secrets[1])
    assert cache.peek(secrets[0]) is not MISS
    await cache.get(secrets[2])
    assert cache.peek(secrets[1]) is MISS
    assert cache.peek(secrets[0]) is not MISS
    cache.apply_changes(changed("k1", "shared user"))
    assert cache.peek(secrets[0]) is MISS


def read_at_start(*secrets, pepper=PEPPERS[0], **fields):
    """Return keys k0, k1, … in the form for `fill`, the last used one first."""
    keys = [(secret, entry(f"k{n}", **fields)) for n, secret in enumerate(secrets)]
    return [(digest(secret, pepper), key) for secret, key in keys]


async def test_keys_that_were_read_at_start_need_no_store(cache, store):
    store.away = True
    assert cache.fill(read_at_start(SECRET, OTHER, disabled=True), cache.generation)
    for _ in range(2):
        assert cache.peek(OTHER) == entry("k1", disabled=True)
    assert await cache.get(SECRET) == entry("k0", disabled=True)
    assert store.calls == []
    cache.apply_changes(changed("k0"))
    assert cache.peek(SECRET) is MISS
    assert cache.peek(OTHER) == entry("k1", disabled=True)
    assert await cache.get(SECRET) == entry("k0", disabled=True)


@pytest.mark.parametrize("change", [changed("k0"), changed("u1"), changed(complete=False)])
@pytest.mark.parametrize("before", [False, True])
async def test_a_change_of_a_key_that_was_read_at_start_is_taken_in(cache, store, change, before):
    """Also a change that comes while they are read."""
    generation = cache.generation
    if before:
        cache.apply_changes(change)
    cache.fill(read_at_start(SECRET), generation)
    if not before:
        cache.apply_changes(change)
    store.put(SECRET, entry("k0", revoked=True))
    assert cache.peek(SECRET) is MISS
    assert (await cache.get(SECRET)).revoked
    assert cache.peek(SECRET).revoked


async def test_a_key_under_an_older_pepper_is_looked_up_when_it_is_used(cache, store):
    """The look-up moves its digest to the newest pepper; while the store is away the key is
    served."""
    cache.fill(read_at_start(SECRET, OTHER, pepper=PEPPERS[1]), cache.generation)
    store.put(SECRET, entry("k0"), PEPPERS[1])
    assert await cache.get(SECRET) == entry("k0")
    assert len(store.calls) == 1
    store.away = True
    assert await cache.get(OTHER) == entry("k1")


async def test_keys_that_were_read_at_start_give_way_first(store, clock, executor):
    cache = KeyCache(store.load, executor, PEPPERS, clock, limit=4)
    secrets = [f"sk-client-000000000{n}" for n in range(6)]
    store.put(SECRET, entry())
    await cache.get(SECRET)
    assert cache.fill(read_at_start(*secrets[:2]), cache.generation)
    assert not cache.fill(read_at_start(*secrets[2:]), cache.generation)
    store.put(OTHER, entry())
    await cache.get(OTHER)
    assert cache.peek(secrets[2]) is MISS  # the one used longest ago of those that fitted in
    assert [cache.peek(known).id for known in (SECRET, OTHER, *secrets[:2])] == [
        *("k1", "k1", "k0", "k1")
    ]
    assert not cache._unused and len(cache._known) == 4
    cache.fill(read_at_start(SECRET), cache.generation)
    await cache.get(SECRET)
    assert len(cache._known) == 4


async def test_guesses_push_no_known_key_out(cache, store, monkeypatch):
    monkeypatch.setattr(key_cache, "UNKNOWN_LIMIT", 5)
    store.put(SECRET, entry())
    await cache.get(SECRET)
    guesses = [f"sk-guess-{n:010d}" for n in range(20)]
    for guess in guesses:
        assert await cache.get(guess) is None
    assert cache.peek(SECRET) == entry()
    assert [cache.peek(guess) for guess in guesses].count(None) == 5


async def test_look_ups_at_once_are_bounded(cache, store, monkeypatch):
    monkeypatch.setattr(key_cache, "FLIGHTS_LIMIT", 3)
    store.gate.clear()
    flying = [asyncio.create_task(cache.get(f"sk-guess-{n:010d}")) for n in range(3)]
    await until(lambda: len(cache._flights) == 3)
    with pytest.raises(StoreUnavailable, match="too many"):
        await cache.get(SECRET)
    store.gate.set()
    assert await asyncio.gather(*flying) == [None] * 3

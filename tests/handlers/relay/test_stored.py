"""Who made a stored response: from memory, then from the store, which may be a moment late."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from adapters.family import StoredRef
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from handlers.relay import stored as module
from handlers.relay.call import Arrival, Call
from handlers.relay.plan import Step
from handlers.relay.stored import PAUSES_S, StoredResponses
from store.catalog import Channel, Snapshot
from store.errors import StoreUnavailable
from store.keys import KeyEntry
from store.stored_responses import mark_of
from store.usage import StoredAt

FAMILY = FAMILIES["responses"]
ID = "resp_1"


def channel(name, keys=("k",), **more):
    fields = {
        "id": f"id-{name}", "vendor": "demo", "family": FAMILY.name, "base_url": "http://x",
        "groups": frozenset({"all"}), "models": {"m": "up"}, "priority": 0, "weight": 1,
        "enabled": True, "fingerprints": tuple(f"mark-{key}" for key in keys), **more,
    }  # fmt: skip
    return Channel(name=name, keys=tuple(keys), **fields)


TWO = (channel("a"), channel("b", "xyz"))


def call_of(channels=TWO, user="ann", response=True, operation="stored"):
    key = KeyEntry("k", "n", user, user, "all", False, False, None, None, (), "plan_first", None)
    call = Call(
        arrival=Arrival("", 0, "", None, None), family=FAMILY, key=key, client_headers={},
        operation=FAMILY.operations[operation], snapshot=Snapshot(1, {}, {}, tuple(channels)),
    )  # fmt: skip
    call.stored_ref = StoredRef("id", ID, response=response)
    if operation == "create":
        call.candidates = tuple(one for one in channels if "m" in one.models and one.enabled)
    return call


class Store:
    """Rows by (user, mark); `late`: how many look-ups find nothing at first."""

    def __init__(self, late=0, error=None):
        self.rows, self.late, self.error, self.asked = {}, late, error, 0
        self.thread = None

    def put(self, channel_id, fingerprint, user="ann"):
        self.rows[user, mark_of(ID)] = StoredAt(mark_of(ID), channel_id, fingerprint)
        return self

    def load(self, user_id, mark, at_ms):
        self.asked, self.thread = self.asked + 1, threading.current_thread()
        if self.error is not None:
            raise self.error
        if self.asked <= self.late:
            return None
        if (user_id, mark) in self.rows:
            return self.rows[user_id, mark]
        return StoredAt(mark) if any(one == mark for _, one in self.rows) else None


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "PAUSES_S", (0.001,) * len(PAUSES_S))


def found(store, *calls):
    """What each call may ask: (channel's name, keys), or the fault."""
    with ThreadPoolExecutor(1) as threads:
        places = StoredResponses(store.load, threads, lambda: 0)

        async def each():
            told = []
            for call in calls:
                try:
                    await places.admit(call)
                    (one,) = call.candidates
                    told.append((one.name, one.keys))
                except Fault as fault:
                    told.append(fault.condition)
            return told

        return asyncio.run(each()) if len(calls) > 1 else asyncio.run(each())[0]


@pytest.mark.parametrize("operation", ["stored", "create"])
def test_the_channel_and_key_that_made_it(operation):
    store = Store().put("id-b", "mark-y")
    assert found(store, call_of(operation=operation)) == ("b", ("y",))
    assert store.thread is not threading.main_thread()


def test_it_is_looked_up_once():
    store = Store().put("id-b", "mark-y")
    assert found(store, call_of(), call_of()) == [("b", ("y",))] * 2
    assert store.asked == 1


@pytest.mark.parametrize("late", range(1, len(PAUSES_S) + 1))
def test_the_store_may_be_late(late):
    assert found(Store(late).put("id-a", "mark-k"), call_of()) == ("a", ("k",))


def test_what_stays_unknown():
    store = Store(late=100)
    assert found(store, call_of()) is Condition.ID_NOT_FOUND
    assert store.asked == 1 + len(PAUSES_S)


def test_another_users_is_unknown_even_where_one_channel_alone_can_have_made_it():
    for channels in (TWO, TWO[:1], TWO[1:]):
        store = Store().put("id-b", "mark-y", user="bob")
        assert found(store, call_of(channels)) is Condition.ID_NOT_FOUND


def test_one_channel_is_asked_for_what_is_not_known():
    store = Store()
    assert found(store, call_of(TWO[:1])) == ("a", ("k",))
    assert store.asked == 1  # with one key there is no doubt, so nothing is waited for
    store = Store()
    assert found(store, call_of(TWO[1:])) == ("b", ("x", "y", "z"))
    assert store.asked == 1 + len(PAUSES_S)


@pytest.mark.parametrize(("channels", "told"), [(TWO, Condition.ID_NOT_FOUND), (TWO[:1], "a")])
def test_what_no_call_has_made_is_not_looked_up(channels, told):
    store = Store(error=StoreUnavailable("away"))
    answer = found(store, call_of(channels, response=False))
    assert answer == (told if told is Condition.ID_NOT_FOUND else ("a", ("k",)))
    assert store.asked == 0


def test_while_the_store_is_away():
    store = Store(error=StoreUnavailable("away"))
    assert found(store, call_of()) is Condition.UNAVAILABLE
    assert found(store, call_of(TWO[:1])) == ("a", ("k",))
    assert found(store, call_of(())) is Condition.ID_NOT_FOUND


def test_a_key_that_was_replaced():
    assert found(Store().put("id-b", "mark-gone"), call_of()) == ("b", ("x", "y", "z"))


@pytest.mark.parametrize(
    ("changes", "operation", "told"),
    [
        ({"enabled": False}, "stored", Condition.NO_CHANNEL),
        ({"enabled": False}, "create", Condition.NO_CHANNEL),
        ({"groups": frozenset({"vip"})}, "stored", Condition.ID_NOT_FOUND),
        ({"family": "messages"}, "stored", Condition.ID_NOT_FOUND),
        ({"id": "id-new"}, "stored", Condition.ID_NOT_FOUND),
        ({"models": {"n": "up"}}, "create", Condition.ID_NOT_FOUND),
        ({"models": {"n": "up"}}, "stored", ("b", ("y",))),
    ],
)
def test_a_channel_that_cannot_be_asked(changes, operation, told):
    channels = (channel("a"), channel("b", "xyz", **changes), channel("c"))
    store = Store().put("id-b", "mark-y")
    assert found(store, call_of(channels, operation=operation)) == told


def test_too_many_look_ups_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "MAX_LOOKUPS", 2)
    store = Store(late=100)
    with ThreadPoolExecutor(1) as threads:
        places = StoredResponses(store.load, threads, lambda: 0)

        async def at_once():
            calls = [places.admit(call_of()) for _ in range(5)]
            return await asyncio.gather(*calls, return_exceptions=True)

        told = [fault.condition for fault in asyncio.run(at_once())]
        assert told.count(Condition.UNAVAILABLE) == 3 and told.count(Condition.ID_NOT_FOUND) == 2
        assert asyncio.run(at_once())[0].condition is Condition.ID_NOT_FOUND


def test_what_this_worker_made_is_known_at_once_until_it_is_deleted(monkeypatch):
    monkeypatch.setattr(module, "MAX_KNOWN", 3)
    store = Store(late=100)
    with ThreadPoolExecutor(1) as threads:
        places = StoredResponses(store.load, threads, lambda: 0)

        def made(response_id, user="ann"):
            call = call_of(user=user)
            call.step = Step(TWO[1], 2)
            places.note(call, None)
            assert call.stored is None
            places.note(call, response_id)
            places.note(call, "another")
            return call.stored

        assert made(ID) == StoredAt(mark_of(ID), "id-b", "mark-z")
        call = call_of()
        asyncio.run(places.admit(call))
        assert (call.candidates[0].keys, store.asked) == (("z",), 0)
        call.target = ID
        places.forget(call)
        assert call.stored == StoredAt(mark_of(ID))
        for number in range(9):
            made(f"resp_{number}")
        assert len(places._known) == 3

"""The user and the maker of a stored response: looked up in memory, then in the store."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from adapters.family.stored import StoredRef
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from handlers.relay import stored_responses as module
from handlers.relay.admit_stored import admit_stored
from handlers.relay.call import Attempt
from handlers.relay.recent_responses import private_recent_responses
from handlers.relay.records import Records
from handlers.relay.routing.plan import Candidate
from handlers.relay.stored_responses import LOOK_UPS_PER_USER, PAUSES_S, StoredResponses
from store.calls.stored_responses import Found, mark_of
from store.catalog.catalog import Snapshot
from store.values.errors import StoreUnavailable
from store.values.usage_record import StoredAt
from tests.handlers.relay.calls import KEY, NATIVE, a_call
from tests.handlers.relay.routing.channels import channel as channel_of
from tests.support.served import until

FAMILY = FAMILIES["responses"]
ID = "resp_1"


def channel(name, keys=("k",), **more):
    return channel_of(name, keys=keys, **{"family": FAMILY.name, **more})


TWO = (channel("a"), channel("b", "xyz"))


def call_of(channels=TWO, user="ann", kind="answer", operation="stored", refs=None):
    key = replace(KEY, user_id=user, user=user, group="all")
    usable = tuple(channel for channel in channels if "m" in channel.models and channel.enabled)
    return a_call(
        FAMILY.name, key=key, operation=FAMILY.client.operations[operation],
        snapshot=Snapshot(1, {}, {}, tuple(channels)),
        channels=usable if operation == "generate" else (),
        refs=refs or (StoredRef(kind, "id", ID, alone=True),),
    )  # fmt: skip


class Store:
    """A store with rows by (user, mark); `late`: how many look-ups find nothing at first."""

    def __init__(self, late=0, error=None, elsewhere="none"):
        self.rows, self.late, self.error, self.asked = {}, late, error, 0
        self.elsewhere = elsewhere
        self.thread = None

    def put(self, channel_id, fingerprint, user="ann"):
        self.rows[user, mark_of(ID)] = StoredAt(mark_of(ID), channel_id, fingerprint)
        return self

    def look(self, user_id, marks, at_ms):
        self.asked, self.thread = self.asked + 1, threading.current_thread()
        if self.error is not None:
            raise self.error
        places = {}
        for owner, mark in self.rows if self.asked > self.late else ():
            if mark in marks and owner == user_id:
                places[mark] = self.rows[owner, mark]
            elif mark in marks:
                places.setdefault(mark, StoredAt(mark))
        return Found(places, self.elsewhere)


class Settled:
    """Shared memory whose writers have written everything to the store, or not since `at_ns`."""

    def __init__(self, at_ns=None):
        self.recent = private_recent_responses()
        self.put, self.find, self.drop = self.recent.put, self.recent.find, self.recent.drop
        self.at_ns = at_ns

    def settled_ns(self):
        return time.monotonic_ns() if self.at_ns is None else self.at_ns


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "PAUSES_S", (0.001,) * len(PAUSES_S))


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2 * LOOK_UPS_PER_USER) as threads:
        yield threads


def places_of(store, threads, fresh=None, refuse=True):
    return StoredResponses(store.look, threads, lambda: 0, fresh or Settled(), refuse)


async def told(places, call):
    """Return the channel and keys that a call may use: (channel's name, keys), or the fault's
    condition."""
    try:
        [only] = await admit_stored(call.head, call.admitted, places)
    except Fault as fault:
        return fault.condition
    return only.name, only.keys


def found(store, *calls, fresh=None, refuse=True):
    with ThreadPoolExecutor(1) as threads:
        places = places_of(store, threads, fresh, refuse)

        async def each():
            return [await told(places, call) for call in calls]

        answers = asyncio.run(each())
        return answers if len(calls) > 1 else answers[0]


@pytest.mark.parametrize("operation", ["stored", "generate"])
def test_the_channel_and_key_that_made_it_are_looked_up_once(operation):
    store = Store().put("id-b", "mark-y")
    calls = [call_of(operation=operation) for _ in range(2)]
    assert found(store, *calls) == [("b", ("y",))] * 2
    assert store.asked == 1 and store.thread is not threading.main_thread()


@pytest.mark.parametrize("late", range(1, len(PAUSES_S) + 1))
def test_the_store_may_be_late(late):
    store = Store(late).put("id-a", "mark-k")
    assert found(store, call_of(), fresh=Settled(at_ns=0)) == ("a", ("k",))


def test_what_stays_unknown():
    store = Store()
    assert found(store, call_of()) is Condition.ID_NOT_FOUND
    assert store.asked == 1  # all writers have written everything


@pytest.mark.parametrize("refuse", [True, False])
def test_another_users_is_unknown_even_where_one_channel_alone_can_have_made_it(refuse):
    for channels in (TWO, TWO[:1], TWO[1:]):
        store = Store().put("id-b", "mark-y", user="bob")
        assert found(store, call_of(channels), refuse=refuse) is Condition.ID_NOT_FOUND


def test_the_only_channel_is_asked_for_what_nobody_was_given_if_that_is_set():
    for channels, told_if_passed in ((TWO[:1], ("a", ("k",))), (TWO[1:], ("b", ("x", "y", "z")))):
        assert found(Store(), call_of(channels)) is Condition.ID_NOT_FOUND
        assert found(Store(), call_of(channels), refuse=False) == told_if_passed
    assert found(Store(), call_of(TWO), refuse=False) is Condition.ID_NOT_FOUND


def test_what_no_call_has_made_is_not_looked_up():
    store = Store(error=StoreUnavailable("away"))
    for channels, told_if_passed in ((TWO, Condition.ID_NOT_FOUND), (TWO[:1], ("a", ("k",)))):
        calls = [call_of(channels, kind="given", operation="generate") for _ in range(2)]
        assert found(store, calls[0]) is Condition.ID_NOT_FOUND
        assert found(store, calls[1], refuse=False) == told_if_passed
    assert store.asked == 0


SHARING = channel("b", "xyz", shared_ids=("vs_1", "resp_*", "cntr_*"))


@pytest.mark.parametrize(("refs", "told"), [
    ((("given", "vs_1"),), ("b", ("x", "y", "z"))),
    ((("given", "resp_new"), ("given", "vs_1")), ("b", ("x", "y", "z"))),
    ((("given", "vs_12"),), Condition.ID_NOT_FOUND),
    ((("given", "vs_1"), ("given", "vs_2")), Condition.ID_NOT_FOUND),
    ((("either", "cntr_1"),), ("b", ("x", "y", "z"))),
    ((("either", ID),), ("b", ("x", "y", "z"))),
    ((("answer", ID),), ("b", ("y",))),  # objects made by answers are never shared
    ((("answer", "resp_new"),), Condition.ID_NOT_FOUND),
    ((("answer", ID), ("given", "vs_1")), ("b", ("y",))),
    ((("answer", ID), ("given", "vs_2")), Condition.ID_NOT_FOUND),
])  # fmt: skip
def test_what_a_channel_shares_may_be_named(refs, told):
    refs = tuple(StoredRef(kind, "x", id_) for kind, id_ in refs)
    call = call_of((channel("a"), SHARING), operation="generate", refs=refs)
    assert found(Store().put("id-b", "mark-y"), call) == told


def test_what_two_accounts_keep_cannot_be_used_together():
    store = Store().put("id-b", "mark-y")
    store.rows["ann", mark_of("resp_2")] = StoredAt(mark_of("resp_2"), "id-b", "mark-x")
    call = call_of(refs=tuple(StoredRef("answer", "x", id_) for id_ in (ID, ID, "resp_2")))
    assert found(store, call) is Condition.ID_NOT_FOUND
    assert store.asked == 1  # one look-up for all of its ids


@pytest.mark.parametrize("refuse", [True, False])
def test_while_the_store_is_away_or_a_writer_behind(refuse):
    away = Store(error=StoreUnavailable("away"))
    assert found(away, call_of(()), refuse=refuse) is Condition.ID_NOT_FOUND
    store, fresh = Store(), Settled(at_ns=time.monotonic_ns())
    for channels in (TWO, TWO[:1]):
        assert found(away, call_of(channels), refuse=refuse) is Condition.UNAVAILABLE
        assert found(store, call_of(channels), fresh=fresh, refuse=refuse) is Condition.UNAVAILABLE
    assert store.asked == 2 * (1 + len(PAUSES_S))
    found_late = found(Store(late=2).put("id-a", "mark-k"), call_of(), fresh=fresh, refuse=refuse)
    assert found_late == ("a", ("k",))


def test_what_other_nodes_may_have_to_tell():
    soon = Store(elsewhere="soon")
    assert found(soon, call_of()) is Condition.ID_NOT_FOUND
    assert soon.asked == 1 + len(PAUSES_S)  # only after the pauses that give it time
    late = Store(late=2, elsewhere="soon").put("id-a", "mark-k")
    assert found(late, call_of()) == ("a", ("k",))
    assert found(Store(elsewhere="overdue"), call_of()) is Condition.UNAVAILABLE


@pytest.mark.parametrize(("changes", "operation", "told"), [
    ({"enabled": False}, "stored", Condition.NO_CHANNEL),
    ({"enabled": False}, "generate", Condition.NO_CHANNEL),
    ({"draining": True}, "stored", ("b", ("y",))),
    ({"groups": frozenset({"vip"})}, "stored", Condition.ID_NOT_FOUND),
    ({"family": "messages"}, "stored", Condition.ID_NOT_FOUND),
    ({"id": "id-new"}, "stored", Condition.ID_NOT_FOUND),
    ({"models": {"n": "up"}}, "generate", Condition.ID_NOT_FOUND),
    ({"models": {"n": "up"}}, "stored", ("b", ("y",))),
    ({"fingerprints": ("f", "g", "h")}, "stored", ("b", ("x", "y", "z"))),  # replaced keys
])  # fmt: skip
def test_a_channel_that_cannot_be_asked(changes, operation, told):
    channels = (channel("a"), channel("b", "xyz", **changes), channel("c"))
    store = Store().put("id-b", "mark-y")
    assert found(store, call_of(channels, operation=operation)) == told


class Held:
    """A store that answers nobody before `free` is set; `most`: simultaneous look-ups."""

    def __init__(self):
        self.free, self.lock = threading.Event(), threading.Lock()
        self.running = self.most = 0

    def look(self, user_id, marks, at_ms):
        if user_id != "ann":  # each of the others has a response of this id
            return Found({mark: StoredAt(mark, "id-a", "mark-k") for mark in marks})
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.free.wait()
        with self.lock:
            self.running -= 1
        return Found({})


async def test_look_ups_of_one_user_hold_nobody_else_up(monkeypatch, threads):
    monkeypatch.setattr(module, "WAITING_PER_USER_MAX", 5)
    store = Held()
    places = places_of(store, threads)
    flood = [asyncio.create_task(told(places, call_of())) for _ in range(20)]
    await until(lambda: store.running == LOOK_UPS_PER_USER)
    # Beyond the running and the waiting look-ups, a user is refused at once and asked to retry.
    await until(lambda: sum(one.done() for one in flood) == 20 - LOOK_UPS_PER_USER - 5)
    others = [await told(places, call_of(user=f"user-{n}")) for n in range(20)]
    store.free.set()
    answers = await asyncio.gather(*flood)
    assert others == [("a", ("k",))] * 20
    assert store.most == LOOK_UPS_PER_USER
    assert answers.count(Condition.UNAVAILABLE) == 20 - LOOK_UPS_PER_USER - 5
    assert answers.count(Condition.ID_NOT_FOUND) == LOOK_UPS_PER_USER + 5
    assert places._queues == {}


async def test_a_store_that_does_not_answer_keeps_a_users_turns(monkeypatch, threads):
    monkeypatch.setattr(module, "LOOK_UP_S", 0.05)
    store = Held()
    places = places_of(store, threads)
    for _ in range(3):
        calls = [told(places, call_of()) for _ in range(LOOK_UPS_PER_USER)]
        assert set(await asyncio.gather(*calls)) == {Condition.UNAVAILABLE}
    store.free.set()
    await until(lambda: not places._queues)
    assert await told(places, call_of()) is Condition.ID_NOT_FOUND
    assert store.most == LOOK_UPS_PER_USER


def made(places, response_id, user="ann"):
    call = call_of(user=user)
    call.attempt = Attempt(Candidate(TWO[1], 2), NATIVE)
    records = Records(None, places, "node-1")
    assert records.note_stored(call, None) is False and call.outcome.stored is None
    assert records.note_stored(call, response_id) is True
    assert records.note_stored(call, "another") is False
    return call.outcome.stored


async def test_what_this_worker_made_is_known_at_once_until_it_is_deleted(monkeypatch, threads):
    monkeypatch.setattr(module, "MAX_KNOWN", 3)
    store = Store(error=StoreUnavailable("away"))
    places = places_of(store, threads)
    assert made(places, ID) == StoredAt(mark_of(ID), "id-b", "mark-z")
    for channels in (TWO, TWO[1:]):
        assert await told(places, call_of(channels)) == ("b", ("z",))
        assert await told(places, call_of(channels, user="bob")) is Condition.ID_NOT_FOUND
    store.error = None
    made(places, ID, "bob")  # vendors may assign an id twice
    assert await told(places, call_of(user="bob")) == ("b", ("z",))
    assert places.forget("ann", ID) == StoredAt(mark_of(ID))
    assert await told(places, call_of()) is Condition.ID_NOT_FOUND
    assert await told(places, call_of(user="bob")) == ("b", ("z",))
    for number in range(9):
        made(places, f"resp_{number}")
    assert len(places._known) == 3


@pytest.mark.parametrize("refuse", [True, False])
async def test_what_another_worker_of_the_node_made_is_known_at_once(threads, refuse):
    store, fresh = Store(error=StoreUnavailable("away")), Settled()
    made(places_of(store, threads, fresh), ID)
    places = places_of(store, threads, fresh, refuse)
    assert await told(places, call_of()) == ("b", ("z",))
    for channels in (TWO, TWO[1:]):
        assert await told(places, call_of(channels, user="bob")) is Condition.ID_NOT_FOUND


async def test_an_id_that_two_workers_have_given_to_two_users(threads):
    store, fresh = Store(error=StoreUnavailable("away")), Settled()
    here, there = places_of(store, threads, fresh), places_of(store, threads, fresh)
    made(here, ID)
    made(there, ID, "bob")
    for places, user in ((here, "bob"), (there, "ann")):
        assert await told(places, call_of(user=user)) == ("b", ("z",))
    assert await told(here, call_of(user="eve")) is Condition.ID_NOT_FOUND


async def test_an_older_response_whose_id_another_user_has_just_been_given(threads):
    """For example in two accounts whose vendor numbers the ids."""
    places = places_of(Store().put("id-a", "mark-k"), threads)
    made(places, ID, "bob")
    assert await told(places, call_of()) == ("a", ("k",))
    assert await told(places, call_of(user="bob")) == ("b", ("z",))

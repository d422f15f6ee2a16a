"""Fresh ids of stored responses in memory that workers share."""

import logging
import multiprocessing
import os

import pytest

from handlers.relay import recent_responses
from handlers.relay import recent_responses as module
from handlers.relay.limits.cells import IncompatibleMemory
from store.calls.stored_responses import mark_of
from store.values.ids import new_ulid
from store.values.usage_record import StoredAt

ANN, BOB, CHANNEL = new_ulid(), new_ulid(), new_ulid()
FINGERPRINT = "f" * 32


def place(name, channel=CHANNEL):
    return StoredAt(mark_of(name), channel, FINGERPRINT)


@pytest.fixture
def memory():
    descriptor = os.memfd_create("test")
    yield descriptor
    os.close(descriptor)


def test_what_one_worker_puts_the_others_find(memory):
    one, other = recent_responses.RecentResponses(memory), recent_responses.RecentResponses(memory)
    one.put(ANN, place("resp_1"))
    assert other.find(mark_of("resp_1")) == [(ANN, place("resp_1"))]
    assert other.find(mark_of("resp_2")) == []
    one.put(ANN, place("resp_1", "C2"))
    assert other.find(mark_of("resp_1")) == [(ANN, place("resp_1", "C2"))]
    other.put(BOB, place("resp_1"))
    assert sorted(one.find(mark_of("resp_1"))) == sorted(
        [(ANN, place("resp_1", "C2")), (BOB, place("resp_1"))]
    )
    one.drop(ANN, mark_of("resp_1"))
    one.drop(ANN, mark_of("resp_2"))
    assert other.find(mark_of("resp_1")) == [(BOB, place("resp_1"))]


def test_the_oldest_gives_way():
    recent = recent_responses.RecentResponses(os.memfd_create("test"), entries=1)
    for number in range(recent_responses.WINDOW_ENTRIES + 3):
        recent.put(ANN, place(f"resp_{number}"))
    numbers = range(recent_responses.WINDOW_ENTRIES + 3)
    known = [bool(recent.find(mark_of(f"resp_{number}"))) for number in numbers]
    assert known == [False] * 3 + [True] * recent_responses.WINDOW_ENTRIES


def test_half_an_entry_is_none(memory):
    recent = recent_responses.RecentResponses(memory)
    recent.put(ANN, place("resp_1"))
    (at,) = recent._places(mark_of("resp_1"))
    recent._memory[at + 60] ^= 1
    assert recent.find(mark_of("resp_1")) == []
    recent.put(ANN, place("resp_1"))
    assert len(recent.find(mark_of("resp_1"))) == 1


def test_a_place_that_is_too_long_is_left_to_the_store():
    recent = recent_responses.private_recent_responses()
    recent.put(ANN, StoredAt(mark_of("resp_1"), "x" * 500, ""))
    assert recent.find(mark_of("resp_1")) == []


def put_many(memory, names):
    recent = recent_responses.RecentResponses(memory)
    for name in names:
        recent.put(name.split("-")[0], place(name))


def test_processes_at_once(memory):
    recent_responses.RecentResponses(memory)
    names = {user: [f"{user}-{number}" for number in range(300)] for user in ("a", "b", "c")}
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=put_many, args=(memory, some)) for some in names.values()]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    recent = recent_responses.RecentResponses(memory)
    for user, some in names.items():
        assert [recent.find(mark_of(name)) for name in some] == [[(user, place(n))] for n in some]


def test_what_the_store_has_of_all_journals(memory):
    one, other = recent_responses.RecentResponses(memory), recent_responses.RecentResponses(memory)
    assert one.settled_ns() == 0
    first, second = new_ulid(), new_ulid()
    one.join(first)
    one.reached(first, 50)
    assert other.settled_ns() == 50
    other.join(second)
    assert one.settled_ns() == 0  # the second journal has not reported yet
    other.reached(second, 70)
    assert one.settled_ns() == other.settled_ns() == 50
    other.finished(first)  # as the process that adopts it reports
    other.finished(first)
    one.reached(first, 90)
    assert one.settled_ns() == 70
    third = new_ulid()
    one.join(third)  # it takes the first one's column, of which nothing remains
    assert one.settled_ns() == 0
    one.reached(third, 80)
    assert one.settled_ns() == 70


def test_more_journals_than_columns(memory, monkeypatch):
    monkeypatch.setattr(module, "COLUMNS", 2)
    recent = recent_responses.RecentResponses(memory)
    for _ in range(2):
        recent.join(new_ulid())
    with pytest.raises(IncompatibleMemory, match="more than 2 journals"):
        recent.join(new_ulid())


@pytest.mark.parametrize("spoil", ["size", "version", "descriptor"])
def test_memory_that_does_not_fit_is_not_shared(memory, caplog, spoil):
    if spoil == "size":
        os.ftruncate(memory, 4096)
    elif spoil == "version":
        recent_responses.RecentResponses(memory)._header[0] = 7
    journal = new_ulid()
    recent = recent_responses.shared_recent_responses(
        -1 if spoil == "descriptor" else memory, journal
    )
    (line,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "until the next restart" in line.message
    recent.put(ANN, place("resp_1"))
    recent.reached(journal, 5)
    assert len(recent.find(mark_of("resp_1"))) == 1
    assert recent.settled_ns() == 0  # ids of other processes are not known here

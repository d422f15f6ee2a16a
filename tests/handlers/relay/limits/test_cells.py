"""Shared cells: GCRA, running calls, and what killed processes leave behind."""

import fcntl
import multiprocessing
import os
import signal
import time

import pytest

from handlers.relay.limits import cells as module
from handlers.relay.limits.cells import (
    COLUMNS,
    MAX_DEBT_NS,
    MINUTE_NS,
    Claim,
    IncompatibleMemory,
    LimitRefusal,
    SharedCells,
    Slots,
    private_cells,
)

SECOND_NS = 1_000_000_000
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def clock(monkeypatch):
    """Return the clock of the cells, in nanoseconds; it stands still unless it is moved."""

    class Clock:
        now_ns = 1000 * MINUTE_NS

        def ns(self):
            return self.now_ns

        def move(self, seconds):
            self.now_ns += int(seconds * SECOND_NS)

    made = Clock()
    monkeypatch.setattr(module.time, "monotonic_ns", made.ns)
    return made


@pytest.fixture
def memory():
    descriptor = os.memfd_create("test")
    yield descriptor
    os.close(descriptor)


def requests(rpm, subject="a"):
    return Claim(subject, rpm, 0, 0)


def calls(concurrency, subject="a"):
    return Claim(subject, 0, 0, concurrency)


def tokens(tpm, wanted, least=1, subject="a"):
    """Return the arguments of `enter`: the claims, and the tokens that a call asks for."""
    return [Claim(subject, 0, tpm, 0)], wanted, least


def taken(cells, claim, most=10_000):
    """Return how many calls are admitted one after the other, until one is refused."""
    for count in range(most):
        if isinstance(cells.enter([claim]), LimitRefusal):
            return count
    return most


@pytest.mark.parametrize("rpm", [1, 2, 7, 60, 500, 999])
def test_a_minutes_requests_may_come_at_once_and_then_evenly(clock, rpm):
    cells = private_cells()
    assert taken(cells, requests(rpm)) == rpm
    clock.move(60 / rpm + 1e-6)
    assert taken(cells, requests(rpm)) == 1
    clock.move(3600)
    assert taken(cells, requests(rpm)) == rpm


def test_a_refusal_tells_the_true_wait_and_costs_nothing(clock):
    cells, claim = private_cells(), requests(6)
    assert taken(cells, claim) == 6
    for _ in range(3):
        refusal = cells.enter([claim])
        assert (refusal.kind, refusal.wait_ns) == ("requests", 10 * SECOND_NS)
    clock.move(9.9)
    assert taken(cells, claim) == 0
    clock.move(0.1)
    assert taken(cells, claim) == 1


def test_a_call_that_was_refused_later_gives_its_request_back(clock):
    cells = private_cells()
    for _ in range(20):
        slots = cells.enter([requests(1)])
        assert isinstance(slots, Slots)
        cells.leave(slots, None)
        cells.leave(slots, None)  # idempotent
    assert taken(cells, requests(1)) == 1


def test_a_changed_limit_acts_on_the_next_call(clock):
    cells = private_cells()
    assert taken(cells, requests(10)) == 10
    # Ten of twenty: the bucket is kept as a time until it is full, so it stays half empty when the
    # limit changes.
    clock.move(30)
    assert taken(cells, requests(20)) == 10
    assert isinstance(cells.enter([requests(5)]), LimitRefusal)


def test_claims_are_taken_all_or_none(clock):
    cells = private_cells()
    key, group = requests(10, "key"), requests(3, "group")
    outcomes = [cells.enter([key, group]) for _ in range(8)]
    assert all(isinstance(one, Slots) for one in outcomes[:3])
    assert all(one.claim is group for one in outcomes[3:])
    assert taken(cells, key) == 7


def test_the_longest_wait_is_told(clock):
    cells = private_cells()
    both = Claim("a", 2, 60, 1)
    assert isinstance(cells.enter([both], 60, 60), Slots)
    refusal = cells.enter([both], 60, 60)
    assert (refusal.kind, refusal.wait_ns) == ("tokens", 60 * SECOND_NS)
    other = [both, requests(1, "b")]
    assert cells.enter(other, 60, 60).kind == "tokens"


def test_what_was_reserved_and_not_used_comes_back(clock):
    cells = private_cells()
    first = cells.enter(*tokens(1000, 900))
    assert cells.enter(*tokens(1000, 900, least=200)).kind == "tokens"
    cells.leave(first, 100)
    second = cells.enter(*tokens(1000, 900, least=200))
    assert second.reservations[0].reserved_ns == 900 * MINUTE_NS // 1000
    cells.leave(second, 900)
    refusal = cells.enter(*tokens(1000, 10, least=10))
    assert refusal.wait_ns == 10 * MINUTE_NS // 1000


def test_the_last_tokens_are_reserved_when_a_short_answer_fits(clock):
    cells = private_cells()
    assert isinstance(cells.enter(*tokens(1000, 700)), Slots)
    last = cells.enter(*tokens(1000, 700, least=250))
    assert last.reservations[0].reserved_ns == 300 * MINUTE_NS // 1000
    assert isinstance(cells.enter(*tokens(1000, 1)), LimitRefusal)


def test_an_absurd_wish_takes_a_minute_and_no_more(clock):
    cells = private_cells()
    absurd = tokens(100, 10**18, least=10**18)
    first = cells.enter(*absurd)
    assert isinstance(first, Slots)
    assert cells.enter(*absurd).wait_ns == MINUTE_NS
    cells.leave(first, 5)
    assert cells.enter(*absurd).wait_ns == 3 * SECOND_NS
    clock.move(3)
    assert isinstance(cells.enter(*absurd), Slots)


def test_tokens_beyond_the_reservation_are_a_debt(clock):
    cells = private_cells()
    cells.leave(cells.enter(*tokens(60, 10)), 180)
    assert cells.enter(*tokens(60, 1)).wait_ns == 121 * SECOND_NS
    clock.move(121)
    assert isinstance(cells.enter(*tokens(60, 1)), Slots)


def test_a_debt_has_an_end(clock):
    cells = private_cells()
    for _ in range(40):
        clock.move(3600)
        cells.leave(cells.enter(*tokens(1, 1)), 10**7)
    assert cells.enter(*tokens(1, 1)).wait_ns == MAX_DEBT_NS


def test_a_call_longer_than_a_minute_is_not_paid_for_twice(clock):
    cells = private_cells()
    slots = cells.enter(*tokens(100, 100))
    clock.move(600)
    cells.leave(slots, 50)
    assert cells.enter(*tokens(100, 100, 100)).__class__ is Slots


def test_running_calls_are_counted_until_they_leave():
    cells = private_cells()
    running = [cells.enter([calls(3)]) for _ in range(3)]
    refusal = cells.enter([calls(3)])
    assert (refusal.kind, refusal.wait_ns) == ("calls", None)
    for slots in running:
        cells.leave(slots, 0)
        cells.leave(slots, 0)
    assert taken(cells, calls(3)) == 3


def test_calls_count_from_before_their_limit_was_set():
    cells = private_cells()
    running = cells.enter([requests(100)])
    assert taken(cells, calls(1)) == 0
    cells.leave(running, 0)
    assert taken(cells, calls(1)) == 1


def test_rows_that_say_nothing_are_used_again(clock, memory):
    cells = SharedCells(memory, rows=4)
    for number in range(100):
        slots = cells.enter([requests(2, f"a{number}"), calls(1, f"b{number}")])
        assert len(slots.reservations) == 2
        cells.leave(slots, 0)
        if number % 2:
            clock.move(30)
    assert cells.sweep() == []


def test_when_all_rows_are_used_a_limit_is_not_applied_and_that_is_told(clock, memory):
    cells = SharedCells(memory, rows=2)
    for subject in ("a", "b"):
        assert isinstance(cells.enter([calls(1, subject)]), Slots)
    refusal = cells.enter([calls(1, "c"), calls(1, "a")])
    assert refusal.claim.subject == "a"  # the claim that has a row is checked nevertheless
    for _ in range(3):
        slots = cells.enter([calls(1, "c")])
        assert slots.reservations == []
        cells.leave(slots, 0)
    assert cells.sweep() == ["limits: table full, 4 limits not applied"]
    assert cells.sweep() == []


def test_two_claims_of_a_call_never_share_a_row(clock, memory):
    cells = SharedCells(memory, rows=2)
    slots = cells.enter([requests(1, "a"), requests(1, "b")])
    assert len({one.row for one in slots.reservations}) == 2


def test_a_running_call_keeps_its_row(clock, memory):
    cells = SharedCells(memory, rows=1)
    slots = cells.enter(*tokens(100, 100))
    clock.move(3600)
    assert cells.enter([calls(1, "b")]).reservations == []
    cells.leave(slots, 200)
    assert isinstance(cells.enter(*tokens(100, 100)), LimitRefusal)


def in_process(work, *args):
    """Run `work(*args, pipe)` in a process of its own."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=work, args=(*args, theirs))
    process.start()
    return process, ours


def take_all(memory, claim, count, pipe):
    cells = SharedCells(memory)
    pipe.send("ready")
    pipe.recv()
    pipe.send(sum(isinstance(cells.enter([claim], 1, 1), Slots) for _ in range(count)))
    pipe.recv()


@pytest.mark.parametrize(
    "claim", [requests(500), calls(500), Claim("a", 0, 500, 0)], ids=["requests", "calls", "tokens"]
)
def test_processes_share_a_limit_exactly(memory, claim):
    workers = [in_process(take_all, memory, claim, 1000) for _ in range(3)]
    for _, pipe in workers:
        assert pipe.recv() == "ready"
    begin = time.monotonic()
    for _, pipe in workers:
        pipe.send("go")
    got = sum(pipe.recv() for _, pipe in workers)
    refilled = 0 if claim.concurrency else (time.monotonic() - begin) * 500 / 60 + 1
    for process, pipe in workers:
        pipe.send("end")
        process.join(10)
    assert 500 <= got <= 500 + refilled


def hold(memory, claim, count, pipe):
    cells = SharedCells(memory)
    for _ in range(count):
        assert isinstance(cells.enter([claim]), Slots)
    pipe.send(cells._column)
    pipe.recv()


def killed(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join(10)


def test_the_slots_of_a_killed_process_are_free_after_a_sweep(memory):
    ours = SharedCells(memory)
    process, pipe = in_process(hold, memory, calls(5), 5)
    assert pipe.recv() == 1
    ours.sweep()
    assert taken(ours, calls(5)) == 0  # the other process is alive
    killed(process)
    assert taken(ours, calls(5)) == 0
    ours.sweep()
    assert taken(ours, calls(5)) == 5
    ours.sweep()  # this process's own slots are not released
    assert taken(ours, calls(5)) == 0


def test_the_next_process_takes_the_column_of_a_dead_one_and_empties_it(memory):
    for _ in range(2):
        process, pipe = in_process(hold, memory, calls(5), 5)
        assert pipe.recv() == 0
        killed(process)


def lock(memory, pipe):
    cells = SharedCells(memory)
    cells._lock()
    pipe.send("locked")
    signal.pause()


@pytest.mark.parametrize("alive", [False, True])
def test_a_process_that_is_killed_or_stopped_with_the_lock_blocks_nobody_for_long(memory, alive):
    ours = SharedCells(memory)
    process, pipe = in_process(lock, memory)
    assert pipe.recv() == "locked"
    if not alive:
        killed(process)
    begin = time.monotonic()
    assert isinstance(ours.enter([calls(5)]), Slots)
    assert time.monotonic() - begin < 5
    told = ["limits: lock timed out 1 times, went on without it"] if alive else []
    assert ours.sweep() == told
    if alive:
        killed(process)


def test_other_memory_is_not_touched(memory):
    SharedCells(memory, rows=8)
    with pytest.raises(IncompatibleMemory, match="another size"):
        SharedCells(memory, rows=16)
    os.pwrite(memory, b"\1" * 8, 0)
    with pytest.raises(IncompatibleMemory, match="another version"):
        SharedCells(memory, rows=8)


def no_column(memory, pipe):
    try:
        SharedCells(memory, rows=8)
    except IncompatibleMemory as error:
        pipe.send(str(error))


def test_more_processes_than_columns(memory):
    SharedCells(memory, rows=8)
    fcntl.lockf(memory, fcntl.LOCK_EX, COLUMNS, 1)
    process, pipe = in_process(no_column, memory)
    assert pipe.recv() == f"more than {COLUMNS} workers share the limits' memory"
    process.join(10)


# ---- shares of nodes, and buckets over a restart -------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 2, 3, 7])
@pytest.mark.parametrize("limit", [1, 5, 60, 100])
def test_all_shares_together_are_the_limit_and_less_than_one_call_a_node_more(clock, limit, nodes):
    of_requests = [taken(private_cells(), Claim("a", limit, 0, 0, nodes)) for _ in range(nodes)]
    of_calls = [taken(private_cells(), Claim("a", 0, 0, limit, nodes)) for _ in range(nodes)]
    for shares in (of_requests, of_calls):
        assert limit <= sum(shares) <= limit + nodes - 1


def test_a_call_beyond_the_nodes_share_takes_it_into_debt(clock):
    cells, claim = private_cells(), Claim("a", 0, 1000, 0, 4)
    slots = cells.enter([claim], 900, 600)  # of a share of 250
    assert slots.reservations[0].reserved_ns == 600 * MINUTE_NS // 250
    assert isinstance(cells.enter([claim], 10, 10), LimitRefusal)
    cells.leave(slots, 500)
    clock.move(60 + 59)
    assert isinstance(cells.enter([claim], 250, 250), LimitRefusal)
    clock.move(1 + 1e-6)
    assert isinstance(cells.enter([claim], 250, 250), Slots)  # 500 tokens take two minutes
    clock.move(1)
    assert isinstance(cells.enter([claim], 600, 600), LimitRefusal)  # waits for a full share


def test_a_restart_finds_the_buckets_as_they_were(clock, tmp_path, monkeypatch):
    wall = [0]
    monkeypatch.setattr(module.time, "time_ns", lambda: clock.now_ns + wall[0])
    saved, claim = tmp_path / "limits", Claim("a", 60, 1000, 60)
    before = SharedCells(os.memfd_create("before"), saved=saved)
    assert not before.saves  # nothing is counted yet
    for _ in range(60):
        before.enter([claim], 5, 5)
    assert before.saves
    before.save()
    wall[0] += clock.now_ns - MINUTE_NS  # the machine was restarted too
    clock.now_ns = MINUTE_NS
    clock.move(2)
    after = SharedCells(os.memfd_create("after"), saved=saved)
    assert taken(after, Claim("a", 60, 0, 0)) == 2  # the refill of two seconds
    assert isinstance(after.enter([Claim("a", 0, 1000, 0)], 800, 800), LimitRefusal)
    assert after.state(claim)[2] == 2  # without calls from before the restart


@pytest.mark.parametrize("content", [b"", b"x" * 100, None])
def test_a_file_that_is_none_of_ours_refills(clock, tmp_path, content):
    saved = tmp_path / "limits"
    cells = SharedCells(os.memfd_create("a"), rows=64, saved=saved)
    assert taken(cells, requests(3)) == 3
    cells.save()
    data = saved.read_bytes()
    saved.write_bytes(bytes(8) + data[8:] if content is None else content)
    assert taken(SharedCells(os.memfd_create("b"), rows=64, saved=saved), requests(3)) == 3


def test_the_first_worker_saves(memory, tmp_path):
    first = SharedCells(memory, saved=tmp_path / "limits")
    process, pipe = in_process(saves, memory, tmp_path / "limits")
    assert pipe.recv() is False
    process.join()
    assert first.saves


def saves(memory, saved, pipe):
    cells = SharedCells(memory, saved=saved)
    cells.enter([requests(3)])
    pipe.send(cells.saves)

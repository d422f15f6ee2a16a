"""Running calls: the work of each second's sweep on them, and the end of a drain."""

import time
from types import SimpleNamespace

import pytest

from conf.settings import UpstreamSettings
from handlers.relay.call import Arrival, Attempt, Requested
from handlers.relay.live import LiveCalls
from handlers.relay.pump import STREAM_HEADERS
from handlers.relay.routing.plan import Candidate
from handlers.relay.running import ClientGone, DrainForced
from handlers.relay.sweep import Sweep
from store.values.usage_record import AttemptRecord
from tests.handlers.relay.calls import CALL_ID, NATIVE, a_call
from tests.handlers.relay.rig import HELLO, SILENT_S, Rig, beat, text
from tests.handlers.relay.routing.channels import channel

COMMIT_S = 30
IDLE_S = 100


class Watch:
    """Live calls with a clock that the test sets. It records the sweep's work: `marks` in the
    journal, `late` attempts, `grown` streams with the number of marks so far."""

    def __init__(self, heartbeat_s=SILENT_S, commit_after_s=COMMIT_S):
        limits = UpstreamSettings(
            heartbeat_s=heartbeat_s, commit_after_s=commit_after_s, idle_timeout_s=IDLE_S
        )
        self.marks, self.late, self.grown = [], [], []
        self.live = LiveCalls()
        health = SimpleNamespace(late=lambda trial, now_s: self.late.append(trial))
        holding = SimpleNamespace(
            follow=lambda stream, more: self.grown.append((stream.call, more, len(self.marks)))
        )
        records = SimpleNamespace(mark=lambda call, units: self.marks.append((call, units)))
        self.sweep = Sweep(limits, self.live, health, holding, records)
        self.now_s = self.live.now_s

    def pass_s(self, seconds):
        """Run this many sweeps."""
        for _ in range(seconds):
            self.now_s += 1
            self.sweep.run(self.now_s)

    def stream(self):
        rig = Rig()
        rig.call.requested = Requested("m", True)
        self.live.enter(rig.call)
        self.live.stream(rig.call, rig.pump, rig.client.downstream)
        return rig


def call_of(number):
    return a_call(arrival=Arrival(f"{CALL_ID[:-1]}{number}", 0, "", None, None))


def test_calls_come_and_go():
    live, calls = Watch().live, [call_of(n) for n in range(3)]
    for call in calls:
        live.enter(call)
    live.stream(calls[0], None, None)
    assert (live.calls, live.streams) == (3, 1)
    live.leave(calls[1])
    live.leave(calls[1])
    assert (live.calls, live.streams) == (2, 1)
    live.leave(calls[0])
    assert (live.calls, live.streams) == (1, 0)
    live.leave(a_call())


def test_calls_are_counted_by_their_channels():
    live, calls = Watch().live, [call_of(n) for n in range(4)]
    for call in calls:
        live.enter(call)
    for call, name in zip(calls, ("a", "a", "b"), strict=False):  # the last one has none yet
        call.attempt = Attempt(Candidate(channel(name), 0), NATIVE)
        call.outcome.attempts.append(AttemptRecord(name))
    wanted = {channel(name).id: name for name in ("a", "c")}
    assert live.running_at(wanted) == {"a": 2}
    live.leave(calls[0])
    assert live.running_at(wanted) == {"a": 1}


def test_the_end_of_a_drain_interrupts_every_call():
    live, calls = Watch().live, [call_of(n) for n in range(3)]
    for call in calls:
        live.enter(call)
    calls[1].running.interrupt(ClientGone())
    live.leave(calls[2])
    live.force_end()
    reasons = [type(call.running.interrupted) for call in calls]
    assert reasons == [DrainForced, ClientGone, type(None)]


async def test_late_answers_are_reported_in_each_sweep_until_they_begin():
    watch, call = Watch(), call_of(1)
    rig = watch.stream()
    watch.live.enter(call)
    watch.pass_s(1)
    assert watch.late == []  # nothing has been sent upstream yet
    rig.call.attempt.health, call.attempt.health = "of the stream", "of the plain call"
    watch.pass_s(2)
    assert watch.late == ["of the stream", "of the plain call"] * 2
    rig.pump.accepted = True
    watch.live.leave(call)
    watch.pass_s(2)
    assert len(watch.late) == 4


async def test_holds_follow_streams_before_the_journal_has_their_mark():
    watch = Watch()
    rig = watch.stream()
    rig.exchange.data(HELLO)
    watch.pass_s(1)
    assert watch.grown == watch.marks == []  # nothing that would be charged
    for words in (b"x" * 400, b"x" * 200):
        rig.exchange.data(text(words))
        watch.pass_s(2)
    assert watch.grown == [(rig.call, 100, 0), (rig.call, 50, 1)]
    assert watch.marks == [(rig.call, 100), (rig.call, 150)]
    assert rig.pump.output_units == 150


def test_the_clock_does_not_begin_at_zero():
    """Otherwise a stream of the first second would be committed at the first sweep."""
    assert abs(Watch().live.now_s - time.monotonic()) < 5


@pytest.mark.parametrize("heartbeat_s", [SILENT_S, 0])
async def test_a_silent_stream_is_committed_in_time_and_gets_heartbeats(heartbeat_s):
    watch = Watch(heartbeat_s)
    watch.pass_s(5)
    rig = watch.stream()
    watch.pass_s(COMMIT_S - 1)
    assert rig.client.pieces == []
    watch.pass_s(1)
    head = (("Content-Type", "text/event-stream"), *STREAM_HEADERS)
    assert rig.client.heads == [(200, head)]
    assert rig.client.body == beat("chat_completions", False)
    watch.pass_s(SILENT_S - 1)
    assert len(rig.client.pieces) == 1
    watch.pass_s(1 + 2 * SILENT_S)
    assert rig.client.pieces == [beat("chat_completions", False)] * (4 if heartbeat_s else 1)
    assert len(rig.client.heads) == 1


async def test_comments_of_the_upstream_do_not_keep_a_stream_from_being_committed():
    watch = Watch()
    rig = watch.stream()
    for _ in range(COMMIT_S):
        rig.exchange.data(b": wait\n\n")
        watch.pass_s(1)
    assert len(rig.client.heads) == 1 and not rig.pump.accepted


async def test_committing_can_be_switched_off_and_a_stream_that_has_begun_is_not_committed():
    watch = Watch(heartbeat_s=0, commit_after_s=0)
    rig = watch.stream()
    watch.pass_s(10 * COMMIT_S)
    assert rig.client.pieces == []
    watch = Watch(heartbeat_s=0)
    rig = watch.stream()
    rig.exchange.data(HELLO)
    watch.pass_s(10 * COMMIT_S)
    assert rig.client.pieces == [HELLO]


async def test_heartbeats_begin_after_the_last_event():
    watch = Watch()
    rig = watch.stream()
    watch.pass_s(3)
    rig.exchange.data(HELLO)
    for _ in range(4):
        watch.pass_s(SILENT_S - 2)
        rig.exchange.data(text(b"still there"))
    assert len(rig.client.pieces) == 5
    watch.pass_s(SILENT_S)
    assert len(rig.client.pieces) == 5
    watch.pass_s(1)
    assert rig.client.pieces[5:] == [beat("chat_completions", False)]
    watch.pass_s(SILENT_S)
    assert len(rig.client.pieces) == 7


async def test_a_call_that_is_over_gets_nothing():
    watch = Watch()
    rig = watch.stream()
    rig.exchange.data(HELLO)
    watch.live.leave(rig.call)
    watch.pass_s(100)
    assert rig.client.pieces == [HELLO] and watch.marks == []


def stall(rig, unsent_bytes):
    """Make the client stop reading, with a full buffer of its connection."""
    connection = rig.client.connection
    connection.room, connection.unsent_bytes = False, unsent_bytes
    assert not rig.exchange.data(HELLO)


async def test_a_client_that_takes_nothing_any_more_is_given_up():
    watch = Watch()
    rig = watch.stream()
    stall(rig, 300_000)
    watch.pass_s(IDLE_S)
    assert rig.call.running.interrupted is None
    watch.pass_s(1)
    assert isinstance(rig.call.running.interrupted, ClientGone)
    assert rig.client.connection.sent[-1] == ("drop",)
    silent = watch.stream()  # waiting for the upstream is no reason
    silent.exchange.data(HELLO)
    silent.client.connection.unsent_bytes = 1000  # within the buffer's size
    watch.pass_s(3 * IDLE_S)
    assert silent.call.running.interrupted is None


async def test_a_client_that_takes_something_now_and_then_is_not():
    watch = Watch()
    rig = watch.stream()
    stall(rig, 300_000)
    for _ in range(5):
        watch.pass_s(IDLE_S)
        rig.client.connection.unsent_bytes -= 1000
    rig.client.connection.room = True
    rig.client.connection.on_drained()
    watch.pass_s(3 * IDLE_S)
    assert rig.call.running.interrupted is None
    assert ("drop",) not in rig.client.connection.sent


# ---- marks ---------------------------------------------------------------------------------------

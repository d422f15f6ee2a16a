"""A full disk of the journal: new calls are refused, running ones end well, nothing is lost."""

import contextlib
import os
from collections import Counter
from decimal import Decimal

import pytest

from tests.support import load
from tests.support.client import Connection, wait_until
from tests.support.dialects import ALL, check_refusal, check_whole_stream
from tests.support.journal import marks
from tests.support.upstream import ScriptedUpstream

STREAMS_MAX = 700  # more open calls than one segment of the journal has room to close
ROOM_BYTES = 5 * 1024 * 1024  # one segment of the journal
SHORT = "[[demo ms=100 chunks=80]]"  # long enough that a busy machine can open all of them
LONG = "[[demo ms=200 chunks=600]]"


@pytest.fixture
def node(small_disk, tmp_path):
    """Yield (gateway, vendor's log); the journal's disk has room for one segment."""
    with ScriptedUpstream(log_file=tmp_path / "vendor.log") as vendor:
        settings = {"journal.dir": small_disk / "journal"}
        gateway = load.gateway_before(vendor, tmp_path / "node", settings)
        try:
            yield gateway, tmp_path / "vendor.log"
        finally:
            gateway.close()


def fill(folder):
    """Fill the file system up to one segment; return the file that takes the space."""
    path = folder / "filler"
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    path.write_bytes(bytes(free - ROOM_BYTES))
    return path


def open_streams(gateway, stack, tag, scripts):
    """Open streams until one is refused; return [(script, connection, answer)]."""
    streams = []
    for number in range(STREAMS_MAX):
        family, script = ALL[number % len(ALL)], scripts[number % len(scripts)]
        connection = stack.enter_context(Connection(gateway.port, patience_s=60))
        load.send(connection, family, f"call-{tag}-{number}", script, stream=True)
        answer = connection.read_head()
        if answer.status != 200:
            connection.read_body(answer)
            check_refusal(answer, family, "E38")
            return streams
        streams.append((script, connection, answer))
    raise AssertionError("the journal never got full")


def fill_journal(gateway, stack, tag, scripts):
    """Open streams until the gateway is not ready, so that space freed meanwhile is used up too."""
    streams = []
    for turn in range(10):
        streams += open_streams(gateway, stack, f"{tag}{turn}", scripts)
        load.check_refused_in_all_dialects(gateway.port, "E38")
        if wait_until(lambda: not gateway.ready(), 3):
            return streams
    raise AssertionError("it stayed ready")


def test_running_calls_end_new_ones_are_refused_and_space_that_returns_is_used(node, small_disk):
    gateway, log_path = node
    filler = fill(small_disk)
    gateway.start()
    pids = set(gateway.pids())
    with contextlib.ExitStack() as stack:
        streams = fill_journal(gateway, stack, "first", (SHORT, LONG))
        short = [stream for stream in streams if stream[0] == SHORT]
        for _, connection, answer in short:
            connection.read_body(answer)
            check_whole_stream(answer)
        assert wait_until(gateway.ready, 30), "what ended gave no room back"
        more = fill_journal(gateway, stack, "more", (LONG,))
        filler.unlink()
        assert wait_until(gateway.ready, 30)
        again = load.Load(gateway.port, "again", load.Manner(callers=4, prompts=load.GOOD_PROMPTS))
        again.wait_for(20)
        again.stop()
    assert again.not_served() == []
    assert set(gateway.pids()) == pids, "it was restarted"
    assert gateway.stop() == 0
    print(f"{len(streams)} streams until the disk was full, then {len(more)}")
    records = load.check_books(gateway, load.names_in(log_path), [again])
    outcomes = Counter(record["outcome"] for record in records)
    refused = outcomes.pop("refused")
    assert outcomes == {
        "ok": len(short) + len(again.seen),
        "client_gone": len(streams) - len(short) + len(more),
    }
    # Every refused call is counted, however few records stand for them.
    assert refused == sum(record["error_code"] == "unavailable" for record in records)
    assert "Traceback" not in gateway.log()


def test_a_gateway_killed_on_a_full_disk_loses_nothing(node, small_disk):
    gateway, log_path = node
    filler = fill(small_disk)
    gateway.start()
    with contextlib.ExitStack() as stack:
        streams = open_streams(gateway, stack, "lost", (LONG,))
        assert wait_until(lambda: marks(gateway), 10)  # there is no space for more
        gateway.kill()
    # A start on a full disk ends with the reason, or waits; this loses nothing either.
    gateway.launch()
    assert wait_until(lambda: "cannot start a journal" in gateway.log(), 10)
    gateway.kill()
    filler.unlink()
    gateway.start()
    records = load.check_books(gateway, load.names_in(log_path), [])
    outcomes = Counter(record["outcome"] for record in records)
    assert outcomes[load.LOST] == len(streams)
    assert any(Decimal(record["cost"]) > 0 for record in records)

"""The state of a worker in shared memory: any size, never torn."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands.process.worker_state import STATE_AT, StateReader, StateWriter
from tests.support import leash

ROOT = Path(__file__).resolve().parents[3]
WRITES = """
import sys
from commands.process.worker_state import StateWriter
writer = StateWriter(int(sys.argv[1]))
for number in range(10**9):
    writer.write({"number": number, "filled": str(number % 10) * (number * 7919 % 300_000)})
"""


@pytest.fixture
def reader():
    made = StateReader()
    yield made
    made.close()


def test_what_is_written_is_read_once(reader):
    assert reader.read() is None
    writer = StateWriter(reader.descriptor)
    writer.write({"ready": True, "why": "two\nlines", "streams": 3})
    assert reader.read() == {"ready": True, "why": "two\nlines", "streams": 3}
    assert reader.read() is None
    writer.write({"ready": False})  # shorter than what is there
    assert reader.read() == {"ready": False}


def test_beats_and_states_are_apart(reader):
    assert not reader.beaten()
    writer = StateWriter(reader.descriptor)
    writer.write({"ready": True})
    assert not reader.beaten()
    writer.beat()
    writer.beat()
    assert reader.beaten() and not reader.beaten()
    assert reader.read() == {"ready": True}
    writer.beat()
    assert reader.beaten() and reader.read() is None


def test_the_state_of_500_draining_channels_fits(reader):
    ending = {f"{number:03d} {'語' * 124}": number for number in range(500)}
    StateWriter(reader.descriptor).write({"ready": True, "ending": ending})
    assert reader.read() == {"ready": True, "ending": ending}


@pytest.mark.parametrize("cut", [0, 5, 16, 20, 30])
def test_a_state_that_is_half_written_is_not_read(reader, cut):
    StateWriter(reader.descriptor).write({"streams": 1})
    reader.read()
    other = StateReader()
    writer = StateWriter(other.descriptor)
    writer.write({"streams": 2})
    writer.write({"streams": 3, "why": "longer"})
    whole = os.pread(other.descriptor, 1000, STATE_AT)
    other.close()
    os.pwrite(reader.descriptor, whole[:cut], STATE_AT)
    assert reader.read() is None
    os.pwrite(reader.descriptor, whole, STATE_AT)
    assert reader.read() == {"streams": 3, "why": "longer"}


def test_a_reader_beside_a_writer_sees_whole_states_only(reader):
    command = [sys.executable, "-c", WRITES, str(reader.descriptor)]
    writer = leash.Popen(command, cwd=ROOT, pass_fds=[reader.descriptor], stdin=subprocess.DEVNULL)
    try:
        states, end = [], time.monotonic() + 10
        while len(states) < 100 and time.monotonic() < end:
            if (state := reader.read()) is not None:
                states.append(state)
    finally:
        writer.kill()
        writer.wait()
    assert len(states) == 100
    for state in states:
        assert set(state["filled"]) <= {str(state["number"] % 10)}, json.dumps(state)[:80]
        assert len(state["filled"]) == state["number"] * 7919 % 300_000

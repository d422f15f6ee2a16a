"""A child process: its back-off, its silence, and its state in shared memory."""

import os

import pytest

from commands.process.child import SILENT_LOOKS, BackOff, Silence
from commands.process.worker_state import STATE_AT, StateReader, StateWriter


@pytest.mark.parametrize(("lives_s", "waits_s"), [
    # after early deaths the wait grows, up to 30 s
    ([0.1] * 9, [0.5, 1, 2, 4, 8, 16, 30, 30, 30]),
    ([4.9, 4.9, 5.0, 0.0], [0.5, 1.0, 0.0, 0.5]),  # a long life resets the wait
])  # fmt: skip
def test_the_wait_before_a_start(lives_s, waits_s):
    back_off = BackOff()
    assert [back_off.died(lived_s) for lived_s in lives_s] == waits_s


@pytest.mark.parametrize(("allowance", "silent_at", "looks"), [
    (0, [100.5, 100.9, 101.0, 101.5, 102.0], 2),  # a second apart
    (0, [9000.0, 9000.1], 1),  # hours without a look count as one look
    (3, range(100, 102 + SILENT_LOOKS), SILENT_LOOKS - 1),  # a start may take longer
    (3, range(100, 103 + SILENT_LOOKS), SILENT_LOOKS),
])  # fmt: skip
def test_looks_without_a_beat_are_counted(allowance, silent_at, looks):
    silence = Silence(allowance)
    if not allowance:
        silence.look(100.0, beaten=True)
    for now in silent_at:
        silence.look(now, beaten=False)
    assert (silence.looks, silence.hangs) == (looks, looks >= SILENT_LOOKS)
    silence.look(99_999.0, beaten=True)
    assert silence.looks == 0


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
    writer.write({"ready": False})  # shorter than the previous state
    assert reader.read() == {"ready": False}


def test_beats_and_states_are_apart(reader):
    assert not reader.beaten()
    writer = StateWriter(reader.descriptor)
    writer.write({"ready": True})
    assert not reader.beaten()
    writer.beat()
    writer.beat()
    assert 0 <= writer.silent_s < 5
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

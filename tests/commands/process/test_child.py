"""A child process: its back-off, its silence, and its state in shared memory."""

import os

import pytest

from commands.process.child import SILENT_LOOKS, BackOff, Silence
from commands.process.worker_state import STATE_AT, StateReader, StateWriter


def test_early_deaths_wait_longer_each_time_up_to_30_s():
    back_off = BackOff()
    waits = [back_off.died(0.1) for _ in range(9)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_long_life_starts_anew():
    back_off = BackOff()
    assert [back_off.died(4.9), back_off.died(4.9)] == [0.5, 1.0]
    assert back_off.died(5.0) == 0.0
    assert back_off.died(0.0) == 0.5


def test_looks_without_a_beat_are_counted_a_second_apart():
    silence = Silence()
    silence.look(100.0, beaten=True)
    for now in (100.5, 100.9, 101.0, 101.5, 102.0):
        silence.look(now, beaten=False)
    assert silence.looks == 2
    silence.look(102.1, beaten=True)
    assert silence.looks == 0


def test_hours_without_a_look_are_one_look():
    silence = Silence()
    silence.look(100.0, beaten=True)
    silence.look(9000.0, beaten=False)
    silence.look(9000.1, beaten=False)
    assert silence.looks == 1


def test_a_start_may_take_longer():
    silence = Silence(allowance=3)
    for second in range(3 + SILENT_LOOKS - 1):
        silence.look(100.0 + second, beaten=False)
    assert not silence.hangs
    silence.look(200.0, beaten=False)
    assert silence.hangs


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

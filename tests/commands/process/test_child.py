"""The parts of a child process that need no process."""

from commands.process.child import SILENT_LOOKS, BackOff, Silence


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

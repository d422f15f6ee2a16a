"""The parts of a child process that need no process."""

from commands.process.child import BackOff


def test_early_deaths_wait_longer_each_time_up_to_30_s():
    back_off = BackOff()
    waits = [back_off.died(0.1) for _ in range(9)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_long_life_starts_anew():
    back_off = BackOff()
    assert [back_off.died(4.9), back_off.died(4.9)] == [0.5, 1.0]
    assert back_off.died(5.0) == 0.0
    assert back_off.died(0.0) == 0.5

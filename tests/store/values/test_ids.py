"""ULIDs: the published example, the time in them, and invalid ones."""

import pytest

from store.values import ids

AT_MS = 1_767_225_599_999  # 2025-12-31T23:59:59.999Z


def test_known_values():
    assert ids.ulid(0, bytes(10)) == "0" * 26
    assert ids.ulid((1 << 48) - 1, b"\xff" * 10) == "7" + "Z" * 25
    assert ids.ulid(1_469_918_176_385, bytes(10))[:10] == "01ARYZ6S41"


def test_time_and_day_come_back():
    text = ids.ulid(AT_MS, b"\xff" * 10)
    assert (ids.ulid_ms(text), ids.day_of(text)) == (AT_MS, 20251231)
    assert ids.day_of(ids.ulid(AT_MS + 1, bytes(10))) == 20260101
    for day in (20251231, 20260101, 20280229):
        begin_ms = ids.day_begin_ms(day)
        assert ids.day_at(begin_ms) == day and ids.day_at(begin_ms - 1) != day


def test_new_ones_differ_and_are_of_now():
    made = {ids.new_ulid() for _ in range(1000)}
    assert len(made) == 1000
    assert all(abs(ids.ulid_ms(text) - ids.now_ms()) < 60_000 for text in made)


@pytest.mark.parametrize("text", ["", "0" * 25, "0" * 27, "8" + "0" * 25, "0" * 25 + "I", "ö" * 26])
def test_what_is_none(text):
    with pytest.raises(ValueError, match="not a ULID"):
        ids.ulid_ms(text)


@pytest.mark.parametrize(("at_ms", "random"), [(-1, 10), (1 << 48, 10), (0, 9), (0, 11)])
def test_what_makes_none(at_ms, random):
    with pytest.raises(ValueError):
        ids.ulid(at_ms, bytes(random))

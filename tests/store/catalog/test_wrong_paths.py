"""Wrong paths of keys: counted, bounded, dismissed, forgotten."""

import pytest

from store.catalog import wrong_paths

pytestmark = pytest.mark.databases("sqlite")

AT_MS = 1_800_000_000_000
DOUBLED = "/v1/messages/v1/messages"


@pytest.fixture
def notices(clock):
    return wrong_paths.Notices(clock)


@pytest.fixture
def shown(database):
    """Return shown(key …), which returns (path, calls) as the owner of the keys sees them."""

    def find(*keys):
        return [(one.path, one.calls) for one in wrong_paths.of_keys(database, keys, 0)]

    return find


def seen(path=DOUBLED, at_ms=AT_MS, method="POST", address="192.0.2.1", agent="x/1"):
    return wrong_paths.Seen(method, path, at_ms, address, agent)


@pytest.mark.databases("sqlite", "mariadb")
def test_calls_of_a_path_are_counted(database, notices, clock, shown):
    notices.note("k", seen())
    notices.note("k", seen(at_ms=AT_MS + 5, address="192.0.2.2"))
    notices.note("k", seen(method="GET"))
    notices.note("other", seen("/nothing"))
    notices.write(database)
    [first, _] = wrong_paths.of_keys(database, ["k"], 0)
    expected = wrong_paths.Noticed(*("k", "POST", DOUBLED, 2, AT_MS, AT_MS + 5, "192.0.2.2", "x/1"))
    assert first == expected
    assert shown("other") == [("/nothing", 1)] and shown("nobody") == []
    notices.note("k", seen(at_ms=AT_MS + 9))
    for waited_s, calls in (
        (0, 2),
        (wrong_paths.WRITE_INTERVAL_S, 3),
    ):  # written only at intervals
        clock.now += waited_s
        notices.write(database)
        assert wrong_paths.of_keys(database, ["k"], 0)[0].calls == calls


def test_of_a_key_the_newest_paths_stay(database, clock, shown):
    for number in range(3 * wrong_paths.MAX_PATHS):
        notices = wrong_paths.Notices(clock)
        notices.note("k", seen(f"/{number}", AT_MS + number))
        notices.write(database)
    assert [path for path, _ in shown("k")] == [
        f"/{number}"
        for number in range(3 * wrong_paths.MAX_PATHS - 1, 2 * wrong_paths.MAX_PATHS - 1, -1)
    ]


def test_a_flood_is_taken_in_part(notices):
    for number in range(2 * wrong_paths.PER_MINUTE):
        notices.note("k", seen(f"/{number}"))
    assert len(notices._waiting) == wrong_paths.PER_MINUTE
    notices.note("k", seen("/later", AT_MS + wrong_paths.MINUTE_MS))
    assert len(notices._waiting) == wrong_paths.PER_MINUTE + 1
    for number in range(2 * wrong_paths.MAX_WAITING):
        notices.note(f"k{number}", seen())
    assert len(notices._waiting) == wrong_paths.MAX_WAITING


def test_a_long_path_is_cut(database, notices, shown):
    notices.note("k", seen("/" + "x" * 5000))
    notices.note("k", seen("/" + "x" * 6000))
    notices.write(database)
    assert shown("k") == [("/" + "x" * 199, 2)]


def test_dismissed_until_the_next_call(database, notices, clock, shown):
    notices.note("k", seen())
    notices.write(database)
    wrong_paths.dismiss(database, "k")
    assert shown("k") == []
    wrong_paths.dismiss(database, "k", dismissed=False)
    assert shown("k") == [(DOUBLED, 1)]
    wrong_paths.dismiss(database, "k")
    clock.now += wrong_paths.WRITE_INTERVAL_S
    notices.note("k", seen(at_ms=AT_MS + 1))
    notices.write(database)
    assert shown("k") == [(DOUBLED, 2)]


def test_forgotten_after_a_week(database, notices, shown):
    notices.note("k", seen())
    notices.write(database)
    assert wrong_paths.of_keys(database, ["k"], AT_MS + 1) == []
    wrong_paths.forget_old(database, AT_MS + wrong_paths.KEPT_MS)
    assert shown("k") == [(DOUBLED, 1)]
    wrong_paths.forget_old(database, AT_MS + wrong_paths.KEPT_MS + 1)
    assert shown("k") == []

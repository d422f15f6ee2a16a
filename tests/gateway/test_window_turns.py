"""Midnight: windows of plans and limits turn while calls run, and the full amount is available
again."""

import contextlib
import datetime
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.client import Connection
from tests.support.clock import FakeClock
from tests.support.coins import COIN, WALLET, base, call, charges_of, of_plan, paid, person
from tests.support.dialects import CHAT, ask, check_refusal, credentials, path_of
from tests.support.gateway import Gateway
from tests.support.wallets import joined, secret_of

WINDOWS = ("day", "week", "month")
SCRIPT = "[[demo ms=100 chunks=80]]"  # eight seconds
DAY = datetime.timedelta(1)


def monthend():
    """Return the next midnight, at least two days from now, at which a day, a week and a month
    start."""
    day = datetime.datetime.now(datetime.UTC).date() + 2 * DAY
    while day.day != 1 or day.strftime("%A") != "Monday":
        day += DAY
    return datetime.datetime.combine(day, datetime.time(), datetime.UTC)


def people():
    made = []
    for window in WINDOWS:
        plan = {"quota": "2", "window": window, "starts_at": "2020-01-01T00:00:00Z"}
        made += [
            person(f"plan-{window}", "0", "plan_only", {f"per-{window}": plan}),
            person(f"limit-{window}", "99", limit="2", limit_window=window),
        ]
    return joined(*made)


@pytest.fixture(scope="module")
def midnight():
    return monthend()


@pytest.fixture(scope="module")
def gateway(vendor, tmp_path_factory, midnight):
    """Yield a gateway whose clock shows a minute before midnight; its commands use the same
    clock."""
    clock = FakeClock()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in clock.environment.items():
            patch.setenv(name, value)
        made = Gateway(tmp_path_factory.mktemp("gateway"))
        made.clock = clock
        made.apply(joined(base(vendor), people()))
        clock.set_by((midnight - datetime.datetime.now(datetime.UTC)).total_seconds() - 60)
        made.start()
        made.follow()
        yield made
        made.close()


NAMES = [f"{kind}-{window}" for kind in ("plan", "limit") for window in WINDOWS]


@pytest.fixture(scope="module")
def crossed(gateway, midnight):
    """Return what happened around midnight, by user, in the order of the calls."""
    seen = {name: [] for name in NAMES}
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(streaming(gateway, name)) for name in NAMES}
        answers = {name: connection.read_head() for name, connection in running.items()}
        for_all(lambda name: seen[name].append(paid(gateway, name)))
        for_all(lambda name: seen[name].append(refused(gateway, name)))
        gateway.clock.set_by((midnight - datetime.datetime.now(datetime.UTC)).total_seconds())
        for_all(lambda name: seen[name].append(paid(gateway, name)))
        assert not any(answer.call_id in gateway.tail for answer in answers.values())
        for name, connection in running.items():
            connection.read_body(answers[name])
            seen[name].append(gateway.record(answers[name].call_id))
        for name in NAMES:
            seen[name] += [paid(gateway, name), refused(gateway, name)]
    return seen


def for_all(act):
    """Run for all at once: the streams must still run when the last one is done."""
    with ThreadPoolExecutor(len(NAMES)) as pool:
        list(pool.map(act, NAMES))


@contextlib.contextmanager
def streaming(gateway, name):
    with Connection(gateway.port) as connection:
        headers = credentials(CHAT, secret_of(name))
        body = ask(CHAT, COIN, SCRIPT, stream=True)
        connection.request("POST", path_of(CHAT, COIN, True), headers, body)
        yield connection


def refused(gateway, name):
    return check_refusal(call(gateway, name), CHAT, "E19")


def payer(name):
    kind, _, window = name.partition("-")
    return [of_plan(f"per-{window}")] if kind == "plan" else [WALLET]


@pytest.mark.parametrize("name", NAMES)
def test_a_call_counts_in_the_window_in_which_it_began(crossed, midnight, name):
    before, said_before, new, record, after, said_after = crossed[name]
    # The stream and one more call use up the old window; the stream still runs when it turns.
    assert before == payer(name)
    assert said_before.endswith(f" is used up until {midnight.date()}.")
    began = datetime.datetime.fromisoformat(record["started_at"])
    assert record["outcome"] == "ok" and charges_of(record) == payer(name)
    assert began < midnight  # `crossed` has seen that the stream still ran after it
    # The new window has its full amount: two calls, although the stream has ended between them.
    assert new == after == payer(name)
    lasts = {"day": 1, "week": 7, "month": days_of_month(midnight)}[name.partition("-")[2]]
    assert said_after.endswith(f" is used up until {midnight.date() + lasts * DAY}.")


def days_of_month(first):
    return ((first + 31 * DAY).replace(day=1) - first).days


def test_commands_show_the_new_windows_and_the_books_are_right(gateway, crossed, midnight):
    listed = json.loads(gateway.run("subscription", "list", "--json"))
    assert {one["spent"] for one in listed} == {"2"} and len(listed) == len(WINDOWS)
    resets = {one["plan"]: one["resets_at"] for one in listed}
    assert resets["per-day"] == f"{midnight.date() + DAY}T00:00:00Z"
    keys = json.loads(gateway.run("key", "list", "--json"))
    assert {key["spent"] for key in keys if key["limit"] is not None} == {"2"}
    gateway.run("usage", "verify")
    gateway.run("books", "verify")

"""Fail-over over real sockets: one of three channels fails, no client notices, it is avoided and
then used again.

Each kind of failure has models and channels of its own; all run at the same time. A channel is an
upstream whose behaviour the test changes while calls run.
"""

import contextlib
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS, COOLDOWN_S
from tests.support.client import exchange, wait_until
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import channel, document
from tests.support.switched import WAYS, Switched

serial = itertools.count()
IN_ROW = 60  # calls while the channel fails, one after the other

# Faults that open the circuit; by default CONSECUTIVE_FAULTS. A key check confirms a refusal
# first.
AT_ONCE = {"429 with retry-after": 1, "401": 3}
STREAMED = ("error as first event", "resets after headers")
# place: the upstream keys of its first channel
KEYS = {"refused account": ["sk-one", "sk-two", "sk-three", "sk-four"]}
PLACES = [*WAYS, "refuses", *KEYS]
# The long test.
RATE, OUTAGE_S, AFTER_S = 50, 30, 6
DELAYS_S = {"slow": 10, "stalls": 60}
FIRST_BYTE_S = 12
RETRY_AFTER_S = 2
PATIENCE_S = 60
IN_FLIGHT = 3  # calls on their way to the bad channel when its circuit opens
SLACK_S = 3.0  # for a busy machine


def model_of(place):
    return place.replace(" ", "-")


def channels_of(place, upstreams):
    for number, upstream in enumerate(upstreams):
        more = {"keys": KEYS[place], "priority": 1} if place in KEYS and not number else {}
        name = model_of(place)
        yield channel(f"{name}-{number}", CHAT, upstream.url, {name: "up"}, **more)


@pytest.fixture(scope="module")
def upstreams():
    """Yield the upstreams of each place's three channels; the first one is to fail."""
    with contextlib.ExitStack() as stack:

        def opened():
            return stack.enter_context(contextlib.closing(Switched()))

        yield {place: [opened() for _ in range(3)] for place in PLACES}


@pytest.fixture(scope="module")
def gateway(launch, upstreams):
    channels = [one for place in PLACES for one in channels_of(place, upstreams[place])]
    settings = {"upstream.connect_timeout_s": 3}
    return launch(document([model_of(place) for place in PLACES], channels), settings)


def ask_once(gateway, place, stream=False):
    # Each call is a conversation of its own, so that none has a preferred channel.
    body = ask(CHAT, model_of(place), f"Question {next(serial)}", stream=stream)
    return exchange(gateway.port, "POST", PATHS[CHAT], credentials(CHAT), body)


def is_served(answer):
    return answer.status == 200 and answer.whole and b'"Hi"' in answer.body


def attempts_of(gateway, answer):
    """Return (channel, error) of each attempt of a call."""
    attempts = gateway.record(answer.call_id)["attempts"]
    return [(attempt["channel"], attempt["error"]) for attempt in attempts]


@contextlib.contextmanager
def failing(bad, way):
    """Make the upstream fail in this way; at the end it works again."""
    address = bad.refuse() if way == "refuses" else None
    if way in DELAYS_S:
        bad.delay_s = DELAYS_S[way]
    elif address is None:
        bad.way = way
    yield
    bad.way, bad.delay_s = None, 0.0
    if address is not None:
        bad.listen_again(address)


def back_within(gateway, place, bad, limit_s):
    """Check that the recovered upstream soon succeeds again, while calls go on."""
    began, before = time.monotonic(), bad.asked.count(None)
    while bad.asked.count(None) == before:
        assert is_served(ask_once(gateway, place))
        assert time.monotonic() - began < limit_s, place
        time.sleep(0.02)


def play(gateway, upstreams, place):
    """Make calls around an outage of the first channel; return the number of its faults."""
    bad, streams = upstreams[place][0], place in STREAMED
    for _ in range(6):
        assert is_served(ask_once(gateway, place, streams))
    with failing(bad, place):
        asked = len(bad.asked)
        answers = [ask_once(gateway, place, streams) for _ in range(IN_ROW)]
        lost = [answer.body for answer in answers if not is_served(answer)]
        assert not lost, (place, lost)
        faults = len(bad.asked) - asked
    if place != "401":  # suspended for long; not waited for here
        back_within(gateway, place, bad, 2 + COOLDOWN_S * 2)
        assert all(is_served(ask_once(gateway, place, streams)) for _ in range(5))
    return faults


@pytest.fixture(scope="module")
def played(gateway, upstreams):
    places = [*WAYS, "refuses"]
    with ThreadPoolExecutor(len(places)) as pool:
        yield {place: pool.submit(play, gateway, upstreams, place) for place in places}


@pytest.mark.parametrize("place", [*WAYS, "refuses"])
def test_one_of_three_fails_and_nobody_notices(played, place):
    faults = played[place].result()
    # IN_ROW calls may take longer than a cool-down on a busy machine, so one probe is allowed.
    most = AT_ONCE.get(place, CONSECUTIVE_FAULTS) + 1
    # An upstream that refuses connections sees no request.
    assert place == "refuses" or 1 <= faults <= most


def test_an_account_that_is_refused_does_not_use_up_the_attempts(gateway, upstreams):
    """The account has more keys than a call has attempts, and is asked first; another channel
    serves the call."""
    place, bad = "refused account", upstreams["refused account"][0]
    bad.way = "401"
    first = ask_once(gateway, place)
    assert is_served(first)
    assert [name for name, _ in attempts_of(gateway, first)][:2] == ["refused-account-0"] * 2
    suspended = " channel=refused-account-0 upstream_key"
    while sum(suspended in x and "key refused" in x for x in gateway.log().splitlines()) < 4:
        assert is_served(ask_once(gateway, place))
    met = bad.asked.count("401")
    assert all(is_served(ask_once(gateway, place)) for _ in range(5))
    assert bad.asked.count("401") == met


# ---- the long test -------------------------------------------------------------------------------


class Callers:
    """Callers that make RATE calls a second, plain and streamed in turn; (start, answer) of
    each."""

    def __init__(self, gateway, place):
        self.calls, self._over = [], threading.Event()
        self._gateway, self._place = gateway, place
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        with ThreadPoolExecutor(RATE * PATIENCE_S) as pool:
            for number in itertools.count():
                if self._over.wait(1 / RATE):
                    return
                pool.submit(self._call, number % 2 == 0)

    def _call(self, stream):
        began = time.monotonic()
        self.calls.append((began, ask_once(self._gateway, self._place, stream)))

    def stop(self):
        self._over.set()
        self._thread.join()
        return self.calls


@pytest.mark.long
@pytest.mark.parametrize("way", [*WAYS, "refuses", *DELAYS_S])
def test_fifty_calls_a_second_and_a_long_outage(launch_own, way):
    settings = {"upstream.first_byte_timeout_s": FIRST_BYTE_S, "routing.retry_timeouts": "true"}
    with contextlib.ExitStack() as stack:
        three = [stack.enter_context(contextlib.closing(Switched())) for _ in range(3)]
        made = document([model_of(way)], list(channels_of(way, three)))
        gateway = launch_own(made, {"log.level": "info", **settings})
        callers, bad = Callers(gateway, way), three[0]
        stack.callback(callers.stop)
        time.sleep(2)
        failed_at = time.monotonic()
        with failing(bad, way):
            time.sleep(OUTAGE_S)
        recovered_at, well = time.monotonic(), bad.asked.count(None)
        if way != "401":
            assert wait_until(lambda: bad.asked.count(None) > well, PATIENCE_S)
        back_s, before = time.monotonic() - recovered_at, [len(one.asked) for one in three]
        time.sleep(AFTER_S)
        share, *others = (len(one.asked) - n for one, n in zip(three, before, strict=True))
        calls = callers.stop()
    lost = [answer.body for _, answer in calls if not is_served(answer)]
    assert lost == [] and len(calls) > RATE * OUTAGE_S / 2
    if way in DELAYS_S:
        return
    # Only a few calls failed there before its circuit first opened.
    cooldown_s = RETRY_AFTER_S if "retry-after" in way else COOLDOWN_S
    faults = 0
    for began, answer in calls:
        failed = [name for name, error in attempts_of(gateway, answer) if error is not None]
        assert set(failed) <= {f"{model_of(way)}-0"}
        faults += len(failed) * (0 <= began - failed_at < 0.7 * cooldown_s)
    print(f"{way}: {len(calls)} calls, {faults} faults, back in {back_s:.2f} s")
    assert 1 <= faults <= AT_ONCE.get(way, CONSECUTIVE_FAULTS) + IN_FLIGHT
    if way != "401":
        # At most the fourth cool-down of the outage, the longest, is running.
        assert back_s <= (cooldown_s if "retry-after" in way else 8 * cooldown_s) + SLACK_S
        assert share >= sum(others) / 10

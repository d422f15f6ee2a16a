"""Every way in which a call can end: one record, the right charge, and nothing held afterwards.

The families take turns; more ways before the first byte are in test_relay_faults.py. Each case has
a model, channels and a wallet of its own, so that a wallet shows what that one call took. All
cases run at once before the first is checked.
"""

import contextlib
import itertools
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal

import pytest

from tests.support.chat_streams import chat_stream, thought
from tests.support.client import Connection, encode_head, events, wait_until
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MAX_TOKENS,
    MESSAGES,
    REFUSALS,
    ask,
    check_refusal,
    check_stream_failure,
    check_whole_stream,
    credentials,
    is_terminal,
    path_of,
    text_of,
)
from tests.support.documents import PRICE, channel
from tests.support.journal import marked
from tests.support.upstream import STREAM_HEAD, RawUpstream
from tests.support.wallets import Wallets, check_charged, check_free, joined, owners, secret_of

CREDIT = "12.345678901"
TIMEOUT_S = 2
SETTINGS = {
    "upstream.first_byte_timeout_s": TIMEOUT_S,
    "upstream.idle_timeout_s": TIMEOUT_S,
    "upstream.heartbeat_s": 0,
    "upstream.commit_after_s": 0,
}
CALLS_AT_ONCE = 32
PLAIN, STREAM = "plain", "stream"
BOTH_MODES = (PLAIN, STREAM)
FLOOD_TOKENS_MAX = 8192  # of output that a client did not ask for
CHUNKS = 100  # of the answers whose client disconnects
GONE = "client_gone"


@dataclass(frozen=True)
class Way:
    """One way to end: what the vendor's script or the client does, and the expected result."""

    name: str
    outcome: str
    script: str = ""
    modes: tuple[str, ...] = BOTH_MODES
    condition: str | None = None
    client: str = "reads"
    paid: bool = False
    floods: bool = False  # the vendor sends far more than the bound
    left: bool = False  # the vendor has the request, and the client has nothing of the answer


BROKEN = {"modes": (STREAM,), "paid": True}
FLOOD = {"script": "flood=64.ms=20", "floods": True, "paid": True, "modes": (STREAM,)}
UPSTREAM, CUT = "upstream_error", "upstream_truncated"
WAYS = [
    Way("ok", "ok", paid=True),
    Way("a 500", UPSTREAM, "status=500", (PLAIN,), "E26"),
    Way("a 429", UPSTREAM, "status=429", (STREAM,), "E25"),
    Way("a cut within the body", UPSTREAM, "cut=50", (PLAIN,), "E26"),
    Way("an error first", UPSTREAM, "error_event=0.type=overloaded_error", (STREAM,), "E27"),
    Way("silence before the head", "timeout", "stall_before_head", (PLAIN,), "E28"),
    Way("an error in the stream", UPSTREAM, "error_event=6.type=overloaded_error", condition="E27",
        **BROKEN),
    Way("a cut in the stream", CUT, "cut=6", condition="E26", **BROKEN),
    Way("an early end of the stream", CUT, "clean_end=6", condition="E26", **BROKEN),
    Way("silence in the stream", "timeout", "stall=6", condition="E28", **BROKEN),
    Way("left within the body", GONE, "", (PLAIN,), client="sends half"),
    Way("left before the head", GONE, "stall_before_head", client="waits", left=True),
    Way("left after the head", GONE, "stall_after_head", (STREAM,), client="waits", left=True),
    Way("left within the answer", GONE, "stall=50", (PLAIN,), client="waits", left=True),
    Way("left after a tenth", GONE, f"ms=40.chunks={CHUNKS}", client="reads a tenth", **BROKEN),
    Way("left in a flood", GONE, client="reads a little", **FLOOD),
    Way("left after the last byte", "ok", client="reads it all", paid=True),
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One call: a way to end, in a family, streamed or not. `name` is also its owner."""

    way: Way
    family: str
    mode: str
    prefix: str = ""

    @property
    def name(self):
        return f"{self.prefix}{self.way.name}-{self.family}-{self.mode}".replace(" ", "-")

    @property
    def stream(self):
        return self.mode == STREAM

    @property
    def channel(self):
        return {self.name: f"script.{self.way.script}" if self.way.script else "demo-small"}


def cases_of(ways, prefix=""):
    """Return the cases of these ways in their modes, the families in turn."""
    turns = itertools.cycle(ALL)
    return [Case(way, next(turns), mode, prefix) for way in ways for mode in way.modes]


CASES = cases_of(WAYS)
ENDLESS = "ms=50.chunks=4000"
SILENT = "stall_before_head"
DRAINED = cases_of(
    [
        Way("streaming", "drained", ENDLESS, (STREAM,), "E38", paid=True),
        Way("flooding", "drained", condition="E38", **FLOOD),
        Way("waiting", "drained", SILENT, BOTH_MODES, "E38"),
    ],
    "drained-",
)
KILLED = cases_of(
    [
        Way("streaming", "gateway_lost", ENDLESS, (STREAM,), paid=True),
        Way("flooding", "gateway_lost", **FLOOD),
        Way("waiting", "gateway_lost", SILENT),
    ],
    "killed-",
)


@dataclass
class Played:
    """All calls of a gateway: what their clients saw and what was recorded, by owner."""

    gateway: object
    wallets: Wallets
    answers: dict[str, object]
    records: dict[str, dict]


def judged(gateway, answers):
    """Yield the calls once each has its record."""
    records = wait_until(lambda: all_of(gateway, len(answers)), 15, step_s=0.3)
    assert records, f"{len(gateway.usage())} records instead of {len(answers)}"
    by_owner = {record["user"]: record for record in records}
    assert len(records) == len(by_owner) == len(answers)
    wallets = Wallets(gateway)
    yield Played(gateway, wallets, answers, by_owner)
    wallets.close()


def all_of(gateway, number, **filters):
    records = gateway.usage(**filters)
    return records if len(records) >= number else None


def content(cases, vendor):
    """Return models, channels, wallets and keys of the cases."""
    made = {
        "model": [{"name": case.name, "price": PRICE} for case in cases],
        "group": [{"name": "all"}],
        "channel": [channel(c.name, c.family, vendor.url, c.channel) for c in cases],
    }
    return joined(made, owners([case.name for case in cases], CREDIT))


# ---- clients -------------------------------------------------------------------------------------


def body_of(case):
    return json.dumps(ask(case.family, case.name, stream=case.stream)).encode()


def play(port, case):
    """Make the call as its client does and close the connection; return what it saw of the
    answer."""
    path, body = path_of(case.family, case.name, case.stream), body_of(case)
    headers = credentials(case.family, secret_of(case.name))
    with Connection(port) as connection:
        data = body[: len(body) // 2] if case.way.client == "sends half" else body
        connection.send(encode_head("POST", path, headers, body) + data)
        if case.way.client == "reads":
            return connection.read()
        answer = CLIENTS[case.way.client](connection, case)
        connection.reset()
        return answer


def waits(connection, case):
    time.sleep(0.5)


def reads_a_little(connection, case):
    answer = connection.read_head()
    answer.pieces.append(connection.read_chunk())
    time.sleep(0.5)
    return answer


def reads_a_tenth(connection, case):
    answer = connection.read_head()
    while len(text_of(case.family, whole_events(answer.body)).split()) < CHUNKS // 10:
        answer.pieces.append(connection.read_chunk())
    return answer


def reads_it_all(connection, case):
    """Read up to the last event without waiting for more; a stream of generate_content has no such
    event."""
    if not case.stream or case.family == GENERATE:
        return connection.read()
    answer = connection.read_head()
    while not any(map(is_terminal, events(whole_events(answer.body)))):
        answer.pieces.append(connection.read_chunk())
    answer.whole = True
    return answer


CLIENTS = {
    "waits": waits,
    "sends half": waits,
    "reads a little": reads_a_little,
    "reads a tenth": reads_a_tenth,
    "reads it all": reads_it_all,
}


def whole_events(body):
    """Return the stream up to the end of its last whole event."""
    end = max(body.rfind(b"\n\n") + 2, body.rfind(b"\r\n\r\n") + 4)
    return body[:end] if end > 3 else b""


# ---- each way to end, in each family -------------------------------------------------------------


@pytest.fixture(scope="module")
def played(launch, vendor, slow):
    """Yield all cases, run at the same time."""
    late = {
        "model": [{"name": name, "price": PRICE} for name in LATE],
        "channel": [channel("slow", CHAT, slow.url, dict.fromkeys(LATE, "m"))],
    }
    document = joined(content(CASES, vendor), late, owners([*LATE], CREDIT))
    gateway = launch(document, SETTINGS, follow=False, shared=False)
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        running = {case.name: pool.submit(play, gateway.port, case) for case in CASES}
        answers = {name: one.result() for name, one in running.items()}
    yield from judged(gateway, answers)


@pytest.mark.parametrize("case", [*CASES, *DRAINED, *KILLED], ids=lambda case: case.name)
def test_a_way_out_is_recorded_and_charged_once(case, request):
    played = request.getfixturevalue("played" if case in CASES else "ended")
    record, answer, way = played.records[case.name], played.answers[case.name], case.way
    assert record["outcome"] == way.outcome, record
    assert record["family"] == case.family
    if answer is not None:
        assert (record["id"], record["status"]) == (answer.call_id, answer.status)
    else:
        assert record["status"] is None
    check_answer(case, answer)
    check_error(case, record)
    if way.paid:
        check_paid(case, answer, record)
    elif way.left:
        check_left(case, record)
    else:
        check_free(record)
    played.wallets.check(case.name, CREDIT, [record])


def check_answer(case, answer):
    """Check that the client saw the ending that is recorded."""
    way = case.way
    if way.outcome == "ok" and way.client == "reads" and case.stream:
        check_whole_stream(answer)
    elif way.outcome == "ok":
        assert answer.status == 200 and answer.whole
    elif way.condition is not None and way.paid:
        check_stream_failure(answer, case.family, way.condition)
    elif way.condition is not None:  # a drain
        check_refusal(answer, case.family, way.condition)


def check_error(case, record):
    if case.way.outcome in (GONE, "upstream_truncated", "drained", "gateway_lost"):
        assert record["error_code"] == case.way.outcome
    elif case.way.condition is not None:
        assert record["error_code"] == REFUSALS[case.way.condition].code
        assert record["error_message"]
    else:
        assert (record["error_code"], record["error_message"]) == (None, None)


def check_left(case, record):
    """Check the estimated charge: the vendor bills the input that it read, and so does the
    gateway."""
    body_bytes = len(body_of(case))
    assert 0 < check_charged(record) < bound_of(case)
    assert body_bytes // 5 < record["input_tokens"] <= body_bytes // 2
    assert (record["output_tokens"], record["usage_source"]) == (0, "estimated")


def check_paid(case, answer, record):
    """Check the charge for delivered content: by the vendor's counts, or by what passed through."""
    cost = check_charged(record)
    if case.way.floods:  # far beyond the call's bound and its initial hold
        assert cost > bound_of(case) and MAX_TOKENS < record["output_tokens"] <= FLOOD_TOKENS_MAX
    else:
        assert 0 < cost < bound_of(case) and record["output_tokens"] < MAX_TOKENS
    if record["usage_source"] == "reported" and not case.way.floods:
        assert record["reported_usage"] is None
    if record["outcome"] == "ok":
        assert record["usage_source"] == "reported"
    else:
        assert record["input_tokens"] > 0 and record["output_tokens"] > 0
        # Only two families report usage before the end of a stream.
        early = case.family in (MESSAGES, GENERATE) and record["outcome"] != "gateway_lost"
        assert record["usage_source"] in (("estimated", "reported") if early else ("estimated",))
    if case.way.client == "reads a tenth":  # what was produced until then; four characters a token
        got = len(text_of(case.family, whole_events(answer.body)))
        whole = sum(len(f"{number} ") for number in range(CHUNKS))
        assert got / 8 < record["output_tokens"] < whole / 4


def bound_of(case):
    """Return what a call is held for: half its bytes as input, all the output it allows."""
    tokens = len(body_of(case)) * Decimal(PRICE["input"]) / 2 + MAX_TOKENS * Decimal(
        PRICE["output"]
    )
    return tokens / 10**6


# ---- clients that disconnect at the last delta ---------------------------------------------------

# Owner and model of a call: whether its vendor still reports usage.
LATE = {"quick": True, "quicker": False}


@pytest.fixture(scope="module")
def slow():
    """Yield a vendor whose bytes the test sends itself."""
    with RawUpstream() as upstream:
        yield upstream


@pytest.mark.parametrize(("who", "reports"), LATE.items())
def test_who_leaves_with_the_last_word_pays_for_what_was_not_seen(played, slow, who, reports):
    """In chat completions usage, with reasoning, comes in an event after the end of the text."""
    text, finish, usage, done = chat_stream([thought(CHAT, 9, 50, 5000)])
    with Connection(played.gateway.port) as connection:
        headers, body = credentials(CHAT, secret_of(who)), ask(CHAT, who, stream=True)
        connection.request("POST", path_of(CHAT, who), headers, body)
        peer = slow.accept()
        peer.send(STREAM_HEAD)
        peer.chunk(text)
        peer.chunk(finish)
        answer = connection.read_head()
        while b'"stop"' not in answer.body:
            answer.pieces.append(connection.read_chunk())
        connection.reset()
    time.sleep(0.1)
    if reports:
        peer.chunk(usage + done)
    [record] = wait_until(lambda: all_of(played.gateway, 1, user=who), 10, step_s=0.2)
    assert record["outcome"] == GONE and record["output_tokens"] == 50
    source = ("reported", 5000) if reports else ("estimated", 0)
    assert (record["usage_source"], record["reasoning_tokens"]) == source
    assert record["duration_ms"] < 5000  # the report is not waited for long
    played.wallets.check(who, CREDIT, [record])
    peer.close()


# ---- drained and killed --------------------------------------------------------------------------

DRAIN_S = 1


@pytest.fixture(scope="module")
def ended(launch, vendor):
    """Yield a gateway that was drained while calls ran, started again, killed, and started
    again."""
    settings = {**SETTINGS, "upstream.first_byte_timeout_s": 60, "upstream.idle_timeout_s": 60,
                "server.drain_timeout_s": DRAIN_S}  # fmt: skip
    gateway = launch(content([*DRAINED, *KILLED], vendor), settings, follow=False, shared=False)
    with running(gateway.port, DRAINED) as (connections, answers):
        gateway.process.send_signal(signal.SIGTERM)
        for case, connection in connections.items():
            if case.way.paid:
                connection.read_body(answers[case.name])
            else:
                answers[case.name] = connection.read()
    assert gateway.process.wait(20) == 0
    gateway.start()
    with running(gateway.port, KILLED) as (_, killed):
        streams = {answer.call_id for answer in killed.values() if answer is not None}
        assert wait_until(lambda: streams <= marked(gateway), 20)
        gateway.kill()
    gateway.start()
    yield from judged(gateway, answers | killed)


@contextlib.contextmanager
def running(port, cases):
    """Yield the connections and answers of calls that do not end; all streams have started."""
    with contextlib.ExitStack() as stack:
        connections, answers = {}, {}
        for case in cases:
            connections[case] = connection = stack.enter_context(Connection(port))
            headers = credentials(case.family, secret_of(case.name))
            path = path_of(case.family, case.name, case.stream)
            connection.request("POST", path, headers, body_of(case))
        for case, connection in connections.items():
            answers[case.name] = answer = connection.read_head() if case.way.paid else None
            while case.way.paid and not text_of(case.family, whole_events(answer.body)):
                answer.pieces.append(connection.read_chunk())
        yield connections, answers


@pytest.mark.parametrize("name", ["played", "ended"])
def test_the_books_are_right(request, name):
    gateway = request.getfixturevalue(name).gateway
    gateway.run("usage", "verify")
    gateway.run("books", "verify")

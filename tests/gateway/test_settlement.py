"""Every way a call can end, in every family: one record, the right charge, and nothing held after.

Each case has a model, channels and a wallet of its own, so that a wallet shows what that one call
took. All cases are played at once before the first is judged.
"""

import contextlib
import json
import signal
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal

import pytest

from tests.support.client import Connection, data_of, encode_head, events, wait_until
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MAX_TOKENS,
    MESSAGES,
    REFUSALS,
    RESPONSES,
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
FLOOD_TOKENS_MAX = 8192  # of what a client did not ask for
CHUNKS = 100  # of the answers that a client leaves
UNKNOWN = "a-model-that-nobody-has"
GONE = "client_gone"


@dataclass(frozen=True)
class Way:
    """A way out: what the vendor is told to do or the client does, and what must come of it."""

    name: str
    outcome: str
    script: str = ""
    modes: tuple[str, ...] = BOTH_MODES
    condition: str | None = None
    client: str = "reads"
    paid: bool = False
    floods: bool = False  # the vendor says far more than it was allowed to
    left: bool = False  # the vendor has the request, the client nothing of an answer
    credit: str = CREDIT
    key: tuple[tuple[str, str], ...] = ()

    def __post_init__(self):
        assert self.paid or self.outcome != "ok"


def refused(name, condition, **more):
    return Way(name, "refused", condition=condition, **more)


def failed(name, condition, script, outcome="upstream_error", **more):
    return Way(name, outcome, script, condition=condition, **more)


def leaves(name, client, script, outcome=GONE, **more):
    return Way(name, outcome, script, client=client, **more)


ONLY_STREAM = {"modes": (STREAM,)}
BROKEN = {"modes": (STREAM,), "paid": True}
FLOOD = {"script": "flood=64.ms=20", "floods": True, "paid": True, "modes": (STREAM,)}
LEFT = {"left": True}
LONG = f"ms=40.chunks={CHUNKS}"
WAYS = [
    Way("ok", "ok", paid=True),
    refused("no JSON", "E11"),
    refused("a wrong field", "E12"),
    refused("an unknown model", "E08"),
    refused("an expired key", "E05", key=(("expires_at", "2020-01-01T00:00:00Z"),)),
    refused("an empty wallet", "E18", credit="0"),
    failed("status 500", "E26", "status=500"),
    failed("status 400", "E22", "status=400"),
    failed("a reset before the head", "E26", "reset_before_head"),
    failed("silence before the head", "E28", "stall_before_head", "timeout"),
    failed("silence after the head", "E28", "stall_after_head", "timeout", **ONLY_STREAM),
    failed("an error as the first event", "E27", "error_event=0.type=overloaded_error",
           **ONLY_STREAM),
    failed("a cut before the first event", "E26", "cut=0", **ONLY_STREAM),
    failed("a cut within the body", "E26", "cut=50", modes=(PLAIN,)),
    failed("silence within the body", "E28", "stall=50", "timeout", modes=(PLAIN,)),
    failed("an error in the stream", "E27", "error_event={at}.type=overloaded_error", **BROKEN),
    failed("a cut in the stream", "E26", "cut={at}", "upstream_truncated", **BROKEN),
    failed("an early end of the stream", "E26", "clean_end={at}", "upstream_truncated", **BROKEN),
    failed("silence in the stream", "E28", "stall={at}", "timeout", **BROKEN),
    leaves("left within the body", "sends half", ""),
    leaves("left before the head", "waits", "stall_before_head", **LEFT),
    leaves("left after the head", "waits", "stall_after_head", **ONLY_STREAM, **LEFT),
    leaves("left within the answer", "waits", "stall=50", modes=(PLAIN,), **LEFT),
    leaves("left after a tenth", "reads a tenth", LONG, **BROKEN),
    Way("left in a flood", GONE, client="reads a little", **FLOOD),
    leaves("left after the last byte", "reads and resets", "", "ok", paid=True),
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One call: a way out, of a family, streamed or not. `name` is its owner, too."""

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
        script = self.way.script.replace("{at}", "6" if self.family == RESPONSES else "3")
        upstream_model = f"script.{script}" if script else "demo-small"
        return {self.name: upstream_model}


def cases_of(ways, prefix=""):
    return [Case(way, f, mode, prefix) for way in ways for f in ALL for mode in way.modes]


CASES = cases_of(WAYS)


@dataclass
class Seen:
    """What a client saw before it left or the answer ended."""

    body_bytes: int = 0
    answer: object = None


@dataclass
class Played:
    """All calls of a gateway: what their clients saw and what was recorded, by owner."""

    gateway: object
    wallets: Wallets
    seen: dict[str, Seen]
    records: dict[str, list] = field(default_factory=dict)

    def collect(self, number):
        """Reads the records when so many are there."""
        found = wait_until(lambda: all_of(self.gateway, number), 15, step_s=0.3)
        assert found, f"{len(self.gateway.usage())} records instead of {number}"
        self.records = defaultdict(list)
        for record in found:
            self.records[record["user"]].append(record)

    def only(self, name):
        """The only record of an owner; the wallet has paid it and holds nothing."""
        (record,) = self.records[name]
        return record


def all_of(gateway, number):
    records = gateway.usage()
    return records if len(records) >= number else None


def content(cases, vendor):
    """Models, channels, wallets and keys of the cases."""
    made = {
        "model": [{"name": case.name, "price": PRICE} for case in cases],
        "group": [{"name": "all"}],
        "channel": [channel(c.name, c.family, vendor.url, c.channel) for c in cases],
    }
    people = [owners([c.name], c.way.credit, **dict(c.way.key)) for c in cases]
    return joined(made, *people)


# ---- clients -------------------------------------------------------------------------------------


def body_of(case):
    """The bytes of the call's body."""
    if case.way.condition == "E11":
        return b'{"model": '
    model = UNKNOWN if case.way.condition == "E08" else case.name
    body = ask(case.family, model, stream=case.stream)
    if case.way.condition == "E12":
        body["model"] = 5
    return json.dumps(body).encode()


def play(port, case):
    """Makes the call as its client does; closes the connection."""
    model = UNKNOWN if case.way.condition == "E08" else case.name
    path, body = path_of(case.family, model, case.stream), body_of(case)
    headers = credentials(case.family, secret_of(case.name))
    seen = Seen(len(body))
    with Connection(port) as connection:
        data = body[: len(body) // 2] if case.way.client == "sends half" else body
        connection.send(encode_head("POST", path, headers, body) + data)
        CLIENTS[case.way.client](connection, case, seen)
    return seen


def reads(connection, case, seen):
    seen.answer = connection.read()


def waits(connection, case, seen):
    time.sleep(0.5)
    connection.reset()


def reads_a_little(connection, case, seen):
    seen.answer = answer = connection.read_head()
    answer.pieces.append(connection.read_chunk())
    time.sleep(0.5)
    connection.reset()


def reads_a_tenth(connection, case, seen):
    seen.answer = answer = connection.read_head()
    while len(text_of(case.family, whole_events(answer.body)).split()) < CHUNKS // 10:
        answer.pieces.append(connection.read_chunk())
    connection.reset()


def reads_and_resets(connection, case, seen):
    """Nothing behind the end of the answer is awaited; a stream of generate_content has none."""
    if not case.stream or case.family == GENERATE:
        seen.answer = connection.read()
    else:
        seen.answer = answer = connection.read_head()
        while not any(map(is_terminal, events(whole_events(answer.body)))):
            answer.pieces.append(connection.read_chunk())
        answer.whole = True
    connection.reset()


CLIENTS = {
    "reads": reads,
    "waits": waits,
    "sends half": waits,
    "reads a little": reads_a_little,
    "reads a tenth": reads_a_tenth,
    "reads and resets": reads_and_resets,
}


def whole_events(body):
    """The stream as far as its events have come to their ends."""
    end = max(body.rfind(b"\n\n") + 2, body.rfind(b"\r\n\r\n") + 4)
    return body[:end] if end > 3 else b""


# ---- each way, each family -----------------------------------------------------------------------

FAILURES = {
    # name: (script of the vendor, streamed, condition)
    "a 500": ("status=500", False, "E26"),
    "a 429": ("status=429", False, "E25"),
    "a 401": ("status=401", False, "E24"),
    "a 400": ("status=400", False, "E22"),
    "a reset": ("reset_before_head", False, "E26"),
    "an HTML page": ("html200", False, "E30"),
    "a cut before any content": ("cut=0", True, "E26"),
    "an end before any content": ("clean_end=0", True, "E30"),
    "a wrong field": ("", False, "E12"),
    "an unknown model": ("", False, "E08"),
}
LOSER, LOSERS_CREDIT = "loser", "0.100000001"


def loss_name(what, family):
    return f"{what}-{family}".replace(" ", "-")


def losers(vendor):
    """The owner of all failing calls, and a channel for each of them."""
    losses = [(what, family) for what in FAILURES for family in ALL]
    made = {
        "model": [{"name": loss_name(*loss), "price": PRICE} for loss in losses],
        "channel": [
            channel(loss_name(what, family), family, vendor.url,
                    {loss_name(what, family): f"script.{FAILURES[what][0] or 'ms=0'}"})
            for what, family in losses
        ],
    }  # fmt: skip
    return joined(made, owners([LOSER], LOSERS_CREDIT))


@pytest.fixture(scope="module")
def played(launch, vendor):
    """All cases, played beside each other."""
    document = joined(content(CASES, vendor), losers(vendor))
    gateway = launch(document, SETTINGS, follow=False, shared=False)
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        running = {case.name: pool.submit(play, gateway.port, case) for case in CASES}
        seen = {name: one.result() for name, one in running.items()}
    wallets = Wallets(gateway)
    made = Played(gateway, wallets, seen)
    made.collect(len(CASES))
    yield made
    wallets.close()


def by_name(case):
    return case.name


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_a_way_out_is_recorded_and_charged_once(case, played):
    record, seen, way = played.only(case.name), played.seen[case.name], case.way
    assert record["outcome"] == way.outcome, record
    assert (record["family"], record["user"]) == (case.family, case.name)
    if seen.answer is not None:
        assert (record["id"], record["status"]) == (seen.answer.call_id, seen.answer.status)
    else:
        assert record["status"] is None
    check_answer(case, seen.answer)
    check_error(case, record)
    if way.paid:
        check_paid(case, seen, record)
    elif way.left:
        check_left(seen, record)
    else:
        check_free(record)
    played.wallets.check(case.name, way.credit, [record])


def check_answer(case, answer):
    """What the client was told is the ending that is recorded."""
    way = case.way
    if way.outcome == "ok" and way.client == "reads" and case.stream:
        check_whole_stream(answer)
    elif way.outcome == "ok":
        assert answer.status == 200 and answer.whole
    elif way.condition is not None and way.paid:
        check_stream_failure(answer, case.family, way.condition)
    elif way.condition is not None:
        check_refusal(answer, case.family, way.condition)


def check_error(case, record):
    if case.way.outcome in (GONE, "upstream_truncated"):
        assert record["error_code"] == case.way.outcome
    elif case.way.condition is not None:
        assert record["error_code"] == REFUSALS[case.way.condition].code
        assert record["error_message"]
    else:
        assert (record["error_code"], record["error_message"]) == (None, None)


def check_left(seen, record):
    """The vendor bills what it has read, and so does the gateway: as estimated."""
    assert 0 < check_charged(record) < bound_of(seen)
    assert seen.body_bytes // 5 < record["input_tokens"] <= seen.body_bytes // 2
    assert (record["output_tokens"], record["usage_source"]) == (0, "estimated")


def check_paid(case, seen, record):
    """What was delivered is charged: as the vendor counts it, else as it was seen to pass."""
    cost = check_charged(record)
    if case.way.floods:  # far beyond what the call had asked for, and held in the beginning
        assert cost > bound_of(seen) and MAX_TOKENS < record["output_tokens"] <= FLOOD_TOKENS_MAX
    else:
        assert 0 < cost < bound_of(seen) and record["output_tokens"] < MAX_TOKENS
    if record["usage_source"] == "reported" and not case.way.floods:
        assert record["reported_usage"] is None
    if record["outcome"] == "ok":
        if case.family != CHAT or not case.stream:  # there the client has to ask for it
            counted = (record["input_tokens"], record["output_tokens"])
            assert counted == usage_in(case.family, seen.answer.body)
        assert record["usage_source"] == "reported"
    else:
        assert record["input_tokens"] > 0 and record["output_tokens"] > 0
        assert record["usage_source"] in sources_of_a_broken_stream(case.family)
    assert record["prices"]["input"] == PRICE["input"]
    assert record["prices"]["output"] == PRICE["output"]


def sources_of_a_broken_stream(family):
    """Only two families say anything of usage before the end of a stream."""
    return ("estimated", "reported") if family in (MESSAGES, GENERATE) else ("estimated",)


def bound_of(seen):
    """What a call is held for: half its bytes as input, all the output it allows."""
    tokens = seen.body_bytes * Decimal(PRICE["input"]) / 2 + MAX_TOKENS * Decimal(PRICE["output"])
    return tokens / 10**6


NAMES_OF_USAGE = {
    CHAT: ("usage", "prompt_tokens", "completion_tokens"),
    RESPONSES: ("usage", "input_tokens", "output_tokens"),
    MESSAGES: ("usage", "input_tokens", "output_tokens"),
    GENERATE: ("usageMetadata", "promptTokenCount", "candidatesTokenCount"),
}


def usage_in(family, body):
    """(input, output) that an answer says, plain or streamed: of each number the last one."""
    name, *names = NAMES_OF_USAGE[family]
    found = {}
    for said in said_in(body):
        for place in (said, said.get("message"), said.get("response")):
            found |= (isinstance(place, dict) and place.get(name)) or {}
    return tuple(found[one] for one in names)


def said_in(body):
    if body.startswith(b"{"):
        return [json.loads(body)]
    return [said for said in map(data_of, events(body)) if isinstance(said, dict)]


@pytest.mark.parametrize("family", ALL)
def test_who_leaves_after_a_tenth_pays_for_what_was_made_until_then(played, family):
    (case,) = [c for c in CASES if c.way.client == "reads a tenth" and c.family == family]
    record, seen = played.only(case.name), played.seen[case.name]
    assert 0 < Decimal(record["cost"]) < bound_of(seen)
    got = len(text_of(family, whole_events(seen.answer.body)))
    whole = sum(len(f"{number} ") for number in range(CHUNKS))
    # A token is some four characters of text.
    assert got / 8 < record["output_tokens"] < whole / 4


def test_forty_failing_calls_leave_the_balance_as_it_was(played):
    before = played.wallets.balance(LOSER)
    assert before == LOSERS_CREDIT

    def lose(loss):
        what, family = loss
        _, stream, condition = FAILURES[what]
        model = UNKNOWN if condition == "E08" else loss_name(what, family)
        body = ask(family, model, stream=stream)
        if condition == "E12":
            body["model"] = 5
        with Connection(played.gateway.port) as connection:
            headers = credentials(family, secret_of(LOSER))
            connection.request("POST", path_of(family, model, stream), headers, body)
            answer = connection.read()
        check_refusal(answer, family, condition)
        return answer.call_id

    losses = [(what, family) for what in FAILURES for family in ALL]
    assert len(losses) == 40
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lose, losses))

    def recorded():
        found = played.gateway.usage(user=LOSER)
        return found if len(found) >= len(losses) else None

    records = wait_until(recorded, 10, step_s=0.3)
    assert len(records) == len(losses) and {record["id"] for record in records} == ids
    for record in records:
        check_free(record)
    assert played.wallets.balance(LOSER) == before
    played.wallets.check(LOSER, LOSERS_CREDIT, records)
    shown = json.loads(played.gateway.run("wallet", "show", "--user", LOSER, "--json"))
    assert (shown["balance"], shown["held"]) == (before, "0")


def test_the_books_of_all_ways_are_right(played):
    played.gateway.run("usage", "verify")
    played.gateway.run("books", "verify")


# ---- drained and killed --------------------------------------------------------------------------

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
DRAIN_S = 1


@pytest.fixture(scope="module")
def ended(launch, vendor):
    """A gateway that was drained while calls ran, started again, killed, and started again."""
    settings = {**SETTINGS, "upstream.first_byte_timeout_s": 60, "upstream.idle_timeout_s": 60,
                "server.drain_timeout_s": DRAIN_S}  # fmt: skip
    gateway = launch(content([*DRAINED, *KILLED], vendor), settings, follow=False, shared=False)
    seen = {}
    with running(gateway.port, DRAINED, seen) as connections:
        gateway.process.send_signal(signal.SIGTERM)
        for case, connection in connections.items():
            if case.stream and case.way.paid:
                connection.read_body(seen[case.name].answer)
            else:
                seen[case.name].answer = connection.read()
    assert gateway.process.wait(20) == 0
    gateway.start()
    with running(gateway.port, KILLED, seen):
        streams = {seen[case.name].answer.call_id for case in KILLED if case.way.paid}
        assert wait_until(lambda: streams <= marked(gateway), 20)
        gateway.kill()
    gateway.start()
    wallets = Wallets(gateway)
    made = Played(gateway, wallets, seen)
    made.collect(len(DRAINED) + len(KILLED))
    yield made
    wallets.close()


@contextlib.contextmanager
def running(port, cases, seen):
    """The connections of calls that do not end; streams have begun to come."""
    with contextlib.ExitStack() as stack:
        connections = {}
        for case in cases:
            connections[case] = connection = stack.enter_context(Connection(port))
            body = body_of(case)
            headers = credentials(case.family, secret_of(case.name))
            path = path_of(case.family, case.name, case.stream)
            connection.request("POST", path, headers, body)
            seen[case.name] = Seen(len(body))
        for case, connection in connections.items():
            if case.way.paid:
                seen[case.name].answer = answer = connection.read_head()
                while not text_of(case.family, whole_events(answer.body)):
                    answer.pieces.append(connection.read_chunk())
        yield connections


@pytest.mark.parametrize("case", DRAINED, ids=by_name)
def test_what_a_drain_ends_is_charged_as_far_as_it_came(case, ended):
    record, seen = ended.only(case.name), ended.seen[case.name]
    assert (record["outcome"], record["error_code"]) == ("drained", "drained")
    check_answer(case, seen.answer)
    assert (record["id"], record["status"]) == (seen.answer.call_id, seen.answer.status)
    if case.way.paid:
        check_paid(case, seen, record)
    else:
        check_free(record)
    ended.wallets.check(case.name, case.way.credit, [record])


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in KILLED])
def test_what_a_kill_ends_is_charged_by_its_last_mark(case, ended):
    record, seen = ended.only(case.name), ended.seen[case.name]
    assert (record["outcome"], record["error_code"]) == ("gateway_lost", "gateway_lost")
    if case.way.paid:
        assert record["status"] == 200 and record["usage_source"] == "estimated"
        check_paid(case, seen, record)
    else:
        assert record["status"] is None
        check_free(record)
    ended.wallets.check(case.name, case.way.credit, [record])


def test_the_books_of_a_node_that_was_drained_and_killed_are_right(ended):
    ended.gateway.run("usage", "verify")
    ended.gateway.run("books", "verify")

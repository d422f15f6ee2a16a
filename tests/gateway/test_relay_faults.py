"""Every fault of an upstream in every phase: what the client sees, what is recorded, who is asked
next.

A case has models and channels of its own, so that no case can change what another one meets. All
cases of a run are played at once before the first is judged: many of them wait for a time-out.
How a connection or a head fails is no matter of a family, so those cases are asked of two families
in each mode; what is read of bodies and streams is asked of all four, streams of generate_content
as events (its JSON array has tests of its own beside those of streams).
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property

import pytest

from tests.support.client import Connection, data_of, events
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MAX_TOKENS,
    MESSAGES,
    PATHS,
    REFUSALS,
    RESPONSES,
    ask,
    check_ids,
    check_refusal,
    check_stream_failure,
    check_whole_stream,
    credentials,
    is_error,
    is_heartbeat,
    path_of,
    text_of,
)
from tests.support.documents import PRICE, UPSTREAM_KEY, channel, document

TIMEOUT_S = 2
SETTINGS = {
    "upstream.connect_timeout_s": TIMEOUT_S,
    "upstream.first_byte_timeout_s": TIMEOUT_S,
    "upstream.idle_timeout_s": TIMEOUT_S,
    "upstream.heartbeat_s": 0,
    "upstream.commit_after_s": 0,
    "upstream.max_event_bytes": 65536,
    "upstream.max_answer_bytes": 1048576,
    "routing.max_attempts": 2,
}
COMMIT_SETTINGS = {
    **SETTINGS,
    # A request whose kept connection was reset is sent once more: twice the lateness has to fit.
    "upstream.first_byte_timeout_s": 6,
    "upstream.commit_after_s": 1,
}
PLAIN, STREAM = "plain", "stream"
GREETING = "Hello from the built-in demo upstream!"
CALLS_AT_ONCE = 24
TIMED_OUT = "upstream_timeout"


@dataclass(frozen=True)
class Fault:
    """One fault: the vendor's script (or where the channel leads), and what must come of it."""

    name: str
    condition: str | None  # None: it does no harm
    fail_over: bool = False
    script: str = ""
    place: str = "vendor"
    modes: tuple[str, ...] = (PLAIN, STREAM)
    families: tuple[str, ...] = ALL
    headers: tuple[tuple[str, str], ...] = ()
    outcome: str = "upstream_error"
    broken: bool = False  # the stream fails after its acceptance


def of_status(status, condition, fail_over, **more):
    script = f"status={status}"
    return Fault(f"status {status}", condition, fail_over, script, **more)


def of_body(name, condition, fail_over, script, **more):
    return Fault(name, condition, fail_over, script, **more)


OF_TWO = {"families": (MESSAGES, GENERATE)}
CONNECT = [
    Fault("refused", "E29", True, place="dead", **OF_TWO),
    Fault("no such host", "E29", True, place="nowhere", **OF_TWO),
    Fault("no TLS", "E29", True, place="tls", **OF_TWO),
    Fault("no answer to the SYN", "E29", True, place="full", **OF_TWO),
]
BEFORE_HEAD = [
    Fault("reset before the head", "E26", True, "reset_before_head", **OF_TWO),
    Fault("closed before the head", "E26", True, "close_before_head", **OF_TWO),
    Fault("silent before the head", "E28", False, "stall_before_head", outcome="timeout"),
    Fault("200 KB of headers", "E30", True, "big_headers=200", **OF_TWO),
    Fault("no HTTP", "E30", True, place="nonsense", **OF_TWO),
    Fault("20 KB of headers", None, False, "big_headers=20", **OF_TWO),
]
STATUS = [
    of_status(400, "E22", False),
    of_status(401, "E24", True),
    of_status(402, "E24", True),
    of_status(403, "E24", True),
    of_status(404, "E24", True),
    of_status(408, "E26", True),
    of_status(409, "E26", True),
    of_status(413, "E22", False),
    of_status(422, "E22", False),
    of_status(429, "E25", True),
    of_status(500, "E26", True),
    of_status(502, "E26", True),
    of_status(503, "E27", True),
    of_status(504, "E28", False, outcome="timeout"),
    of_status(520, "E26", True),
    of_status(526, "E26", True),
    of_status(529, "E27", True),
]
ERROR_BODIES = [
    of_body(
        "429 of a quota", "E24", True, "status=429.type=insufficient_quota.code=insufficient_quota"
    ),
    of_body(
        "429 of billing",
        "E24",
        True,
        "status=429.message=Check your plan and billing details",
        families=(CHAT, RESPONSES, MESSAGES),  # RESOURCE_EXHAUSTED says this of any limit
    ),
    of_body("429 wait 7", "E25", True, "status=429.retry_after=7", headers=(("retry_after", "7"),)),
    of_body(
        "429 wait 500", "E25", True, "status=429.retry_after=500", headers=(("retry_after", "60"),)
    ),
    of_body("503 wait 9", "E27", True, "status=503.retry_after=9", headers=(("retry_after", "9"),)),
    of_body(
        "400 too long", "E21", False, "status=400.message=prompt is too long: 9 tokens > 8 maximum"
    ),
    of_body(
        "400 context", "E21", False, "status=400.message=maximum context length is 8192 tokens"
    ),
    of_body(
        "400 context code",
        "E21",
        False,
        "status=400.code=context_length_exceeded",
        families=(CHAT, RESPONSES),
    ),
    of_body("400 policy", "E23", False, "status=400.message=It violates our content policy"),
    of_body(
        "400 policy code",
        "E23",
        False,
        "status=400.code=content_policy_violation",
        families=(CHAT, RESPONSES),
    ),
    of_body("400 low balance", "E24", True, "status=400.message=Your credit balance is too low"),
    of_body("400 bad key", "E24", True, "status=400.message=API_KEY_INVALID"),
    of_body(
        "404 file",
        "E35",
        False,
        "status=404.message=File not found: file-abc123.type=not_found.code=not_found",
    ),
    of_body("500 of an overload", "E27", True, "status=500.type=overloaded_error"),
    of_body("400 HTML", "E22", False, "status=400.body=html"),
    of_body("400 text", "E22", False, "status=400.body=text"),
    of_body("400 empty", "E22", False, "status=400.body=empty"),
    of_body("400 list", "E22", False, "status=400.body=array"),
    of_body("400 detail", "E22", False, "status=400.body=detail"),
    of_body("400 message", "E22", False, "status=400.body=message"),
    of_body("400 error text", "E22", False, "status=400.body=error_text"),
    of_body("500 HTML", "E26", True, "status=500.body=html"),
    of_body("500 empty", "E26", True, "status=500.body=empty"),
]
INSTEAD = [
    Fault("redirect", "E30", True, "redirect"),
    Fault("200 HTML", "E30", True, "html200"),
    Fault("200 empty", "E30", True, "empty200"),
    Fault("200 other JSON", "E30", True, "json200"),
    Fault("200 error", "E26", True, "error200"),
    Fault("200 error of an overload", "E27", True, "error200.type=overloaded_error"),
    Fault("gzip", None, False, "gzip"),
    Fault("gzip bomb", "E30", True, "gzip_bomb"),
    Fault("flood without an end", "E30", True, "flood=2", modes=(PLAIN,)),
]
AFTER_HEAD = [
    Fault("silent after the head", "E28", False, "stall_after_head", outcome="timeout"),
    Fault("cut after the head", "E26", True, "cut=0"),
    Fault("reset after the head", "E26", True, "reset=0"),
    Fault("nothing after the head", "E30", True, "clean_end=0"),
    Fault("first event garbage", "E30", True, "garbage=0", modes=(STREAM,)),
    Fault(
        "first event an error", "E27", True, "error_event=0.type=overloaded_error", modes=(STREAM,)
    ),
    Fault(
        "first event a rate limit",
        "E25",
        True,
        "error_event=0.type=rate_limit_error",
        modes=(STREAM,),
    ),
    Fault(
        "first event behind comments an error",
        "E27",
        True,
        "comments.error_event=0.type=overloaded_error",
        modes=(STREAM,),
    ),
]
MIDDLE_PLAIN = [
    Fault("cut within", "E26", True, "cut=50", modes=(PLAIN,)),
    Fault("reset within", "E26", True, "reset=50", modes=(PLAIN,)),
    Fault("half a JSON", "E30", True, "clean_end=50", modes=(PLAIN,)),
    Fault("silent within", "E28", False, "stall=50", modes=(PLAIN,), outcome="timeout"),
    Fault("wrong length", "E26", True, "wrong_length", modes=(PLAIN,)),
    Fault("slowly", None, False, "slow_body", modes=(PLAIN,)),
]
TRUNCATED = {"modes": (STREAM,), "broken": True, "outcome": "upstream_truncated"}
MIDDLE_STREAM = [  # {at}: an event behind the first text
    Fault("cut at event 3", "E26", False, "cut={at}", **TRUNCATED),
    Fault("reset at event 3", "E26", False, "reset={at}", **TRUNCATED),
    Fault("end at event 3", "E26", False, "clean_end={at}", **TRUNCATED),
    Fault("cut, CRLF", "E26", False, "crlf.cut={at}", **TRUNCATED),
    Fault("cut, gzip", "E26", False, "gzip.cut={at}", **TRUNCATED),
    Fault(
        "silent at event 3",
        "E28",
        False,
        "stall={at}",
        modes=(STREAM,),
        broken=True,
        outcome="timeout",
    ),
    Fault("garbage at event 3", "E30", False, "garbage={at}", modes=(STREAM,), broken=True),
    Fault(
        "error at event 3",
        "E27",
        False,
        "error_event={at}.type=overloaded_error",
        modes=(STREAM,),
        broken=True,
    ),
    Fault(
        "rate limit at event 3",
        "E25",
        False,
        "error_event={at}.type=rate_limit_error",
        modes=(STREAM,),
        broken=True,
    ),
]
WITH_MARKER = {"modes": (STREAM,), "families": (CHAT, RESPONSES, MESSAGES)}
AT_END = [
    # Streams of generate_content never have one.
    Fault("no marker", None, False, "no_done", modes=(STREAM,), families=(CHAT, GENERATE)),
    Fault("no last event", "E26", False, "no_done", families=(MESSAGES, RESPONSES), **TRUNCATED),
    # 999 is behind the marker: what happens then is nobody's concern any more.
    Fault("cut behind the marker", None, False, "cut=999", **WITH_MARKER),
    Fault("reset behind the marker", None, False, "reset=999", **WITH_MARKER),
    Fault("silent behind the marker", None, False, "stall=999", **WITH_MARKER),
    Fault("wrong length behind the marker", None, False, "wrong_length", **WITH_MARKER),
]
FAULTS = [
    *CONNECT, *BEFORE_HEAD, *STATUS, *ERROR_BODIES, *INSTEAD, *AFTER_HEAD, *MIDDLE_PLAIN,
    *MIDDLE_STREAM, *AT_END,
]  # fmt: skip

LATE = "first_ms=2100"  # behind the commit of a gateway that waits one second
COMMITTED = [
    Fault("late and good", None, False, LATE),
    Fault("late 500", "E26", False, f"{LATE}.status=500"),
    Fault("late 401", "E24", False, f"{LATE}.status=401"),
    Fault("late 429", "E25", False, f"{LATE}.status=429"),
    Fault("late 400", "E22", False, f"{LATE}.status=400"),
    Fault("late 529", "E27", False, f"{LATE}.status=529"),
    Fault("late reset", "E26", False, f"{LATE}.reset_before_head"),
    Fault("late HTML", "E30", False, f"{LATE}.html200"),
    Fault("late cut", "E26", False, f"{LATE}.cut=0"),
    Fault("late error event", "E27", False, f"{LATE}.error_event=0.type=overloaded_error"),
    Fault("never", "E28", False, "stall_before_head", outcome="timeout"),
    Fault("never after the head", "E28", False, "stall_after_head", outcome="timeout"),
]


@dataclass(frozen=True)
class Case:
    """A fault met by one call: of which family, streamed or not, with a second channel or not."""

    fault: Fault
    family: str
    mode: str
    second: bool
    committed: bool = False

    @property
    def label(self):
        also = ", second channel" if self.second else ""
        return f"{self.fault.name}, {self.family}, {self.mode}{also}"

    @cached_property
    def model(self):
        words = "".join(c if c.isalnum() else "-" for c in self.label)
        return f"{words}-committed" if self.committed else words

    @property
    def stream(self):
        return self.mode == STREAM

    @property
    def script(self):
        return self.fault.script.replace("{at}", "6" if self.family == RESPONSES else "3")

    @property
    def in_prompt(self):
        """Whether the script must be said by the prompt: no path can hold its blanks. A second
        channel would obey it, too."""
        return self.family == GENERATE and " " in self.script


CASES = [
    Case(fault, family, mode, second)
    for fault in FAULTS
    for family in fault.families
    for mode in fault.modes
    for second in (False, True)
]
CASES = [case for case in CASES if not (case.second and case.in_prompt)]
COMMITTED_CASES = [
    Case(replace(fault, modes=(STREAM,)), family, STREAM, True, committed=True)
    for fault in COMMITTED
    for family in ALL
]


@dataclass
class Played:
    """What the client of a case saw."""

    answer: object
    body_bytes: int


@pytest.fixture(scope="module")
def played(request, launch, vendor, dead_port, full_port, nonsense):
    """played(case) -> (gateway, what the client saw); all wanted cases run beside each other."""
    places = {
        "vendor": vendor.url,
        "dead": f"http://127.0.0.1:{dead_port}",
        "full": f"http://127.0.0.1:{full_port}",
        "tls": vendor.url.replace("http:", "https:"),
        "nowhere": "http://nowhere.invalid",
        "nonsense": nonsense.url,
    }
    wanted = {
        item.callspec.params["case"]: None
        for item in request.session.items
        if item.module is request.module and "case" in getattr(item, "callspec", Empty).params
    }
    gateways = {}
    for committed, settings in ((False, SETTINGS), (True, COMMIT_SETTINGS)):
        mine = [case for case in wanted if case.committed is committed]
        if mine:
            channels = [entry for case in mine for entry in channels_of(case, places)]
            content = document([case.model for case in mine], channels)
            gateways[committed] = launch(content, settings)
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        running = {case: pool.submit(play, gateways[case.committed].port, case) for case in wanted}
        yield lambda case: (gateways[case.committed], running[case].result())


class Empty:
    """Stands for a test without parameters."""

    params = ()


def channels_of(case, places):
    scripted = case.script and not case.in_prompt
    upstream_model = f"script.{case.script}" if scripted else "demo-small"
    first = channel(
        f"{case.model}-first", case.family, places[case.fault.place], {case.model: upstream_model},
        priority=5,
    )  # fmt: skip
    if not case.second:
        return [first]
    spare = {case.model: "demo-small"}
    return [first, channel(f"{case.model}-second", case.family, places["vendor"], spare)]


def play(port, case):
    prompt = f"case {case.model}"
    if case.in_prompt:
        words = (word.partition("=") for word in case.script.split("."))
        said = " ".join(f'{name}="{value}"' for name, _, value in words)
        prompt = f"[[demo {said}]] {prompt}"
    body = ask(case.family, case.model, prompt, case.stream)
    path = path_of(case.family, case.model, case.stream)
    if case.family == CHAT and case.stream:
        body["stream_options"] = {"include_usage": True}
    with Connection(port) as connection:
        connection.request("POST", path, credentials(case.family), body)
        answer = connection.read()
    return Played(answer, len(repr(body)))


def by_label(case):
    return case.label


@pytest.mark.parametrize("case", CASES, ids=by_label)
def test_a_fault_is_told_recorded_and_charged_rightly(case, played):
    gateway, seen = played(case)
    fault = case.fault
    record = gateway.record(seen.answer.call_id)
    if fault.broken:
        check_broken(case, seen, record)
    elif fault.condition is None or (case.second and fault.fail_over):
        check_answered(case, seen, record)
    else:
        check_failed(case, seen, record)


def check_record(case, record, attempts):
    stem = f"{case.model}-first"
    names = [stem, f"{case.model}-second"][:attempts]
    assert [attempt["channel"] for attempt in record["attempts"]] == names
    assert all(attempt["ms"] >= 0 for attempt in record["attempts"])
    assert record["channel"] == names[-1]
    assert (record["model"], record["endpoint"]) == (case.model, endpoint_of(case))
    assert (record["family"], record["stream"]) == (case.family, case.stream)
    assert record["duration_ms"] >= 0
    cost = Decimal(record["cost"])
    assert sum(Decimal(charge["amount"]) for charge in record["charges"]) == cost
    return cost


def endpoint_of(case):
    """As records have it: the path without query, the model's name replaced."""
    return path_of(case.family, "{model}", case.stream).partition("?")[0]


def check_answered(case, seen, record):
    """The client got a whole answer, from the second channel when the first one failed."""
    answer, failed_over = seen.answer, case.fault.condition is not None
    assert answer.status == 200, answer.body
    check_ids(answer)
    assert answer.whole and "content-encoding" not in answer.headers
    if case.stream and (case.fault.name != "no marker" or case.family == GENERATE):
        check_whole_stream(answer)
    assert text_of(case.family, answer.body).startswith(GREETING)
    cost = check_record(case, record, 2 if failed_over else 1)
    assert (record["status"], record["outcome"], record["error_code"]) == (200, "ok", None)
    assert record["usage_source"] == "reported" and record["output_tokens"] > 0
    assert 0 < cost < bound_of(seen)
    assert record["attempts"][-1]["error"] is None and record["attempts"][-1]["status"] == 200
    if failed_over:
        assert record["attempts"][0]["error"]


def check_failed(case, seen, record):
    """Nothing was delivered: the family's error with its status, and no charge."""
    fault, answer = case.fault, seen.answer
    message = check_refusal(answer, case.family, fault.condition, **dict(fault.headers))
    for secret in (UPSTREAM_KEY, "127.0.0.1", "nowhere.invalid", "http"):
        assert secret not in message
    if fault.condition in ("E24", "E25") and fault.script.startswith("status="):
        assert case.model in message
    cost = check_record(case, record, 1)
    assert record["status"] == answer.status
    assert (record["outcome"], record["error_code"]) == (
        fault.outcome,
        REFUSALS[fault.condition].code,
    )
    assert record["attempts"][0]["error"] and record["error_message"]
    check_free(record, cost)


def check_free(record, cost):
    assert (cost, record["charges"], record["billed_to"]) == (0, [], None)
    assert record["usage_source"] == "none"
    assert sum(record[name] for name in record if name.endswith("_tokens")) == 0


def check_broken(case, seen, record):
    """The stream began and broke: what came stays, then one error event, and no further channel."""
    fault, answer = case.fault, seen.answer
    check_stream_failure(answer, case.family, fault.condition)
    found = events(answer.body)
    assert not is_error(found[0]) and len(found) > 2
    assert [data_of(event) for event in found[:-1]]  # each is readable
    cost = check_record(case, record, 1)
    assert (record["status"], record["outcome"]) == (200, fault.outcome)
    code = REFUSALS[fault.condition].code
    assert record["error_code"] == ("upstream_truncated" if "truncated" in fault.outcome else code)
    assert record["error_message"]
    assert record["input_tokens"] > 0 and record["output_tokens"] > 0
    assert 0 < cost < bound_of(seen)


def bound_of(seen):
    """Dollars that a call may be held for: half its bytes in, the client's bound out."""
    tokens = seen.body_bytes * Decimal(PRICE["input"]) / 2 + MAX_TOKENS * Decimal(PRICE["output"])
    return tokens / 10**6


@pytest.mark.parametrize("case", COMMITTED_CASES, ids=by_label)
def test_a_committed_stream_fails_in_the_stream(case, played):
    gateway, seen = played(case)
    fault, answer = case.fault, seen.answer
    assert answer.status == 200
    found = events(answer.body)
    beat = b"\r\n" if case.family == GENERATE else found[0]
    assert answer.body.startswith(beat) and is_heartbeat(case.family, beat, False), found[:2]
    record = gateway.record(answer.call_id)
    cost = check_record(case, record, 1)  # although there is a second channel
    assert record["status"] == 200
    if fault.condition is None:
        check_whole_stream(answer)
        assert text_of(case.family, answer.body).startswith(GREETING)
        assert record["outcome"] == "ok" and cost > 0
        return
    check_stream_failure(answer, case.family, fault.condition)
    failure = 2 if case.family in (RESPONSES, GENERATE) else 1  # or one and the bare object
    assert all(data_of(event) is None for event in found[:-failure])
    assert (record["outcome"], record["error_code"]) == (
        fault.outcome,
        REFUSALS[fault.condition].code,
    )
    check_free(record, cost)


# ---- how many channels are asked -----------------------------------------------------------------

PATIENT_SETTINGS = {
    **SETTINGS,
    "routing.max_attempts": 3,
    "routing.total_time_s": 4,  # attempts that time out take 2 to 3 s
    "routing.retry_timeouts": "true",
}
COUNT_PATH = "/v1/messages/count_tokens"
CHAINS = {
    # model: (what its channels do in turn, how many are asked, condition; None: one answers)
    "three broken": (["status=500"] * 3, 3, "E26"),
    "four broken, three asked": (["status=500"] * 4, 3, "E26"),
    "the most useful is told": (["status=429", "status=500", "status=401"], 3, "E26"),
    "a wait is told before a dead end": (["status=401", "status=429"], 2, "E25"),
    "the third answers": (["status=503", "reset_before_head", ""], 3, None),
    "a refusal ends it": (["status=500", "status=400", ""], 2, "E22"),
    "a time-out is retried when asked for": (["stall_before_head", ""], 2, None),
    "none is begun when the time is up": (["stall_before_head"] * 3, 2, "E28"),
}


@pytest.fixture(scope="module")
def chained(launch, vendor):
    """What came of each chain: {(model, streamed): (gateway, answer)}."""
    # Each call has channels of its own: what one learns of a channel the other would act on.
    names = {
        (label, stream): f"{label.replace(' ', '-').replace(',', '')}-{stream}"
        for label in CHAINS
        for stream in (False, True)
    }
    channels = [
        channel(f"{name}-{place}", CHAT, vendor.url,
                {name: f"script.{words}" if words else "demo-small"}, priority=9 - place)
        for (label, _), name in names.items() for place, words in enumerate(CHAINS[label][0])
    ]  # fmt: skip
    channels += [
        channel("counts-first", MESSAGES, vendor.url, {"counts": "script.status=500"}, priority=1),
        channel("counts-second", MESSAGES, vendor.url, {"counts": "demo-small"}),
        channel("no-counts", MESSAGES, vendor.url, {"no-counts": "script.status=529"}),
        channel("usual", MESSAGES, vendor.url, {"usual": "demo-small"}),
    ]
    models = [*names.values(), "counts", "no-counts", "usual"]
    gateway = launch(document(models, channels), PATIENT_SETTINGS)

    def call(name, stream):
        with Connection(gateway.port) as connection:
            body = ask(CHAT, name, stream=stream)
            connection.request("POST", PATHS[CHAT], credentials(), body)
            return connection.read()

    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        running = {
            (label, stream): pool.submit(call, name, stream)
            for (label, stream), name in names.items()
        }
        for call_of_one in running.values():
            call_of_one.result()
        yield gateway, running


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("label", CHAINS)
def test_how_many_channels_are_asked(chained, label, stream):
    gateway, running = chained
    answer = running[label, stream].result()
    _, asked, condition = CHAINS[label]
    record = gateway.record(answer.call_id)
    assert len(record["attempts"]) == asked
    assert len({attempt["channel"] for attempt in record["attempts"]}) == asked
    if condition is None:
        assert answer.status == 200 and record["outcome"] == "ok"
        assert text_of(CHAT, answer.body).startswith(GREETING)
    else:
        check_refusal(answer, CHAT, condition)
        assert record["error_code"] == REFUSALS[condition].code


def test_a_token_count_fails_over_and_fails_as_a_call_does(chained):
    gateway, _ = chained
    for model, attempts in (("counts", 2), ("no-counts", 1)):
        body = ask(MESSAGES, model)
        del body["max_tokens"]
        with Connection(gateway.port) as connection:
            connection.request("POST", COUNT_PATH, credentials(MESSAGES), body)
            answer = connection.read()
        record = gateway.record(answer.call_id)
        assert len(record["attempts"]) == attempts and record["endpoint"] == COUNT_PATH
        check_free(record, Decimal(record["cost"]))
        if model == "counts":
            assert answer.status == 200 and answer.json["input_tokens"] > 0
            assert record["outcome"] == "ok"
        else:
            check_refusal(answer, MESSAGES, "E27")
            assert record["outcome"] == "upstream_error"


@pytest.mark.parametrize("stream", [False, True])
def test_a_redirect_is_not_followed(chained, vendor, stream):
    gateway, _ = chained
    vendor.reset()
    with Connection(gateway.port) as connection:
        body = ask(MESSAGES, "usual", "[[demo redirect]]", stream)
        connection.request("POST", PATHS[MESSAGES], credentials(MESSAGES), body)
        check_refusal(connection.read(), MESSAGES, "E30")
    assert [entry["path"] for entry in vendor.log()] == [PATHS[MESSAGES]]

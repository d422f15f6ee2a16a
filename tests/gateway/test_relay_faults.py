"""Every fault of an upstream in every phase: what the client sees, what is recorded, who is asked
next.

A case has models and channels of its own, so that no case can change what another one meets. All
cases are played at once before the first is judged: many of them wait for a time-out. The families
take turns: what each says of a condition is in test_errors.py, also in a stream that was
committed before the upstream began; JSON arrays of generate_content are in test_streaming.py.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

import pytest

from tests.support.client import data_of, events, exchange
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
    path_of,
    text_of,
)
from tests.support.documents import PRICE, UPSTREAM_KEY, channel, document
from tests.support.wallets import check_charged, check_free

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
PLAIN, STREAM = "plain", "stream"
GREETING = "Hello from the built-in demo upstream!"
CALLS_AT_ONCE = 24


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
    retry_after: str | None = None  # where it is not that of the table
    outcome: str = "upstream_error"
    broken: bool = False  # the stream fails after its acceptance


def faults(*rows, **shared):
    """A fault of each row: (name, condition, whether another channel is asked, script, more)."""
    made = []
    for number, (name, condition, fail_over, script, *more) in enumerate(rows):
        fields = {"families": (ALL[number % len(ALL)],), **shared, **(more[0] if more else {})}
        made.append(Fault(name, condition, fail_over, script, **fields))
    return made


TIMES_OUT = {"outcome": "timeout"}
OVERLOAD, RATE = "type=overloaded_error", "type=rate_limit_error"
BEFORE_HEAD = faults(
    ("refused", "E29", True, "", {"place": "dead"}),
    ("no such host", "E29", True, "", {"place": "nowhere"}),
    ("no TLS", "E29", True, "", {"place": "tls"}),
    ("no answer to the SYN", "E29", True, "", {"place": "full"}),
    ("no HTTP", "E30", True, "", {"place": "nonsense"}),
    ("reset before the head", "E26", True, "reset_before_head"),
    ("closed before the head", "E26", True, "close_before_head"),
    ("silent before the head", "E28", False, "stall_before_head", TIMES_OUT),
    ("200 KB of headers", "E30", True, "big_headers=200"),
    ("20 KB of headers", None, False, "big_headers=20"),
)  # fmt: skip
# How every status and body is understood: tests/adapters/upstream_errors.
REFUSED = faults(
    ("400", "E22", False, "status=400"),
    ("401", "E24", True, "status=401"),
    ("408", "E26", True, "status=408"),
    ("413", "E22", False, "status=413"),
    ("504", "E28", False, "status=504", TIMES_OUT),
    ("529", "E27", True, "status=529"),
    ("429, wait 7", "E25", True, "status=429.retry_after=7", {"retry_after": "7"}),
    ("429, wait 500", "E25", True, "status=429.retry_after=500", {"retry_after": "60"}),
    ("503, wait 9", "E27", True, "status=503.retry_after=9", {"retry_after": "9"}),
    ("400 HTML", "E22", False, "status=400.body=html"),
    ("500 empty", "E26", True, "status=500.body=empty"),
    ("400 bad key", "E24", True, "status=400.message=API_KEY_INVALID"),
)  # fmt: skip
INSTEAD = faults(
    ("redirect", "E30", True, "redirect"),
    ("200 HTML", "E30", True, "html200"),
    ("200 empty", "E30", True, "empty200"),
    ("200 other JSON", "E30", True, "json200"),
    ("200 error", "E26", True, "error200"),
    ("200 error of an overload", "E27", True, f"error200.{OVERLOAD}"),
    ("gzip", None, False, "gzip"),
    ("gzip bomb", "E30", True, "gzip_bomb"),
    ("flood without an end", "E30", True, "flood=2", {"modes": (PLAIN,)}),
)  # fmt: skip
AFTER_HEAD = [
    *faults(
        ("silent after the head", "E28", False, "stall_after_head", TIMES_OUT),
        ("cut after the head", "E26", True, "cut=0"),
        ("reset after the head", "E26", True, "reset=0"),
        ("nothing after the head", "E30", True, "clean_end=0"),
    ),
    *faults(
        ("first event garbage", "E30", True, "garbage=0"),
        ("first event an error", "E27", True, f"error_event=0.{OVERLOAD}"),
        ("first event a rate limit", "E25", True, f"error_event=0.{RATE}"),
        ("first event behind comments", "E27", True, f"comments.error_event=0.{OVERLOAD}"),
        modes=(STREAM,),
    ),
]  # fmt: skip
MIDDLE_PLAIN = faults(
    ("cut within", "E26", True, "cut=50"),
    ("reset within", "E26", True, "reset=50"),
    ("half a JSON", "E30", True, "clean_end=50"),
    ("silent within", "E28", False, "stall=50", TIMES_OUT),
    ("wrong length", "E26", True, "wrong_length"),
    ("slowly", None, False, "slow_body"),
    modes=(PLAIN,),
)
TRUNCATED = {"outcome": "upstream_truncated"}
MIDDLE_STREAM = faults(  # {at}: an event behind the first text
    ("cut, CRLF", "E26", False, "crlf.cut={at}", TRUNCATED),
    ("reset", "E26", False, "reset={at}", TRUNCATED),
    ("end", "E26", False, "clean_end={at}", TRUNCATED),
    ("cut, gzip", "E26", False, "gzip.cut={at}", TRUNCATED),
    ("silent", "E28", False, "stall={at}", TIMES_OUT),
    ("garbage", "E30", False, "garbage={at}"),
    ("error", "E27", False, f"error_event={{at}}.{OVERLOAD}"),
    ("rate limit", "E25", False, f"error_event={{at}}.{RATE}"),
    modes=(STREAM,), broken=True,
)  # fmt: skip
AT_END = [
    # Streams of generate_content never have a marker.
    *faults(("no marker", None, False, "no_done"), families=(CHAT, GENERATE), modes=(STREAM,)),
    *faults(("no last event", "E26", False, "no_done"), families=(MESSAGES, RESPONSES),
            modes=(STREAM,), broken=True, **TRUNCATED),
    # 999 is behind the marker: what happens then is nobody's concern any more.
    *faults(
        ("cut behind the marker", None, False, "cut=999"),
        ("reset behind the marker", None, False, "reset=999"),
        ("silent behind the marker", None, False, "stall=999"),
        ("wrong length behind the marker", None, False, "wrong_length"),
        families=(CHAT, RESPONSES, MESSAGES), modes=(STREAM,),
    ),
]  # fmt: skip
FAULTS = [
    *BEFORE_HEAD, *REFUSED, *INSTEAD, *AFTER_HEAD, *MIDDLE_PLAIN, *MIDDLE_STREAM, *AT_END,
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A fault met by one call: of which family, streamed or not, with a second channel or not."""

    fault: Fault
    family: str
    mode: str
    second: bool

    @property
    def label(self):
        also = ", second channel" if self.second else ""
        return f"{self.fault.name}, {self.family}, {self.mode}{also}"

    @cached_property
    def model(self):
        return "".join(c if c.isalnum() else "-" for c in self.label)

    @property
    def stream(self):
        return self.mode == STREAM

    @property
    def script(self):
        return self.fault.script.replace("{at}", "6" if self.family == RESPONSES else "3")


CASES = [
    Case(fault, family, mode, second)
    for fault in FAULTS
    for family in fault.families
    for mode in fault.modes
    for second in (False, True)
]


@pytest.fixture(scope="module")
def played(launch, vendor, places, nonsense):
    """played(case) -> (gateway, what the client saw); all cases run beside each other."""
    tls = vendor.url.replace("http:", "https:")
    more = {"tls": tls, "nowhere": "http://nowhere.invalid", "nonsense": nonsense.url}
    channels = [one for case in CASES for one in channels_of(case, places | more)]
    gateway = launch(document([case.model for case in CASES], channels), SETTINGS)
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        running = {case: pool.submit(play, gateway.port, case) for case in CASES}
        yield lambda case: (gateway, running[case].result())


def channels_of(case, places):
    models = {case.model: f"script.{case.script}" if case.script else "demo-small"}
    url = places[case.fault.place]
    made = [channel(f"{case.model}-first", case.family, url, models, priority=5)]
    if case.second:
        spare = {case.model: "demo-small"}
        made.append(channel(f"{case.model}-second", case.family, places["vendor"], spare))
    return made


def body_of(case):
    more = (
        {"stream_options": {"include_usage": True}} if case.family == CHAT and case.stream else {}
    )
    return ask(case.family, case.model, f"case {case.model}", case.stream, **more)


def play(port, case):
    path = path_of(case.family, case.model, case.stream)
    return exchange(port, "POST", path, credentials(case.family), body_of(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_a_fault_is_told_recorded_and_charged_rightly(case, played):
    gateway, answer = played(case)
    fault = case.fault
    record = gateway.record(answer.call_id)
    if fault.broken:
        check_broken(case, answer, record)
    elif fault.condition is None or (case.second and fault.fail_over):
        check_answered(case, answer, record)
    else:
        check_failed(case, answer, record)


def check_record(case, record, attempts, **fields):
    names = [f"{case.model}-first", f"{case.model}-second"][:attempts]
    assert [attempt["channel"] for attempt in record["attempts"]] == names
    # As records have it: the path without query, the model's name replaced.
    endpoint = path_of(case.family, "{model}", case.stream).partition("?")[0]
    fields |= {"channel": names[-1], "model": case.model, "endpoint": endpoint,
               "family": case.family, "stream": case.stream}  # fmt: skip
    assert {name: record[name] for name in fields} == fields
    assert record["duration_ms"] >= 0
    assert all(attempt["ms"] >= 0 for attempt in record["attempts"])


def check_answered(case, answer, record):
    """The client got a whole answer, from the second channel when the first one failed."""
    failed_over = case.fault.condition is not None
    assert answer.status == 200, answer.body
    check_ids(answer)
    assert answer.whole and "content-encoding" not in answer.headers
    if case.stream and (case.fault.name != "no marker" or case.family == GENERATE):
        check_whole_stream(answer)
    assert text_of(case.family, answer.body).startswith(GREETING)
    check_record(case, record, 2 if failed_over else 1, status=200, outcome="ok", error_code=None,
                 usage_source="reported")  # fmt: skip
    assert 0 < check_charged(record) < bound_of(case) and record["output_tokens"] > 0
    first, *_, last = [record["attempts"][0], *record["attempts"]]
    assert (last["error"], last["status"]) == (None, 200)
    assert bool(first["error"]) is failed_over


def check_failed(case, answer, record):
    """Nothing was delivered: the family's error with its status, and no charge."""
    fault = case.fault
    waits = {"retry_after": fault.retry_after} if fault.retry_after else {}
    message = check_refusal(answer, case.family, fault.condition, **waits)
    for secret in (UPSTREAM_KEY, "127.0.0.1", "nowhere.invalid", "http"):
        assert secret not in message
    code = REFUSALS[fault.condition].code
    check_record(case, record, 1, status=answer.status, outcome=fault.outcome, error_code=code)
    assert record["attempts"][0]["error"] and record["error_message"]
    check_free(record)


def check_broken(case, answer, record):
    """The stream began and broke: what came stays, then one error event, and no further channel."""
    fault = case.fault
    check_stream_failure(answer, case.family, fault.condition)
    first, *others = events(answer.body)
    assert not is_error(first) and len(others) > 1
    assert [data_of(event) for event in (first, *others[:-1])]  # each is readable
    truncated = fault.outcome == "upstream_truncated"
    code = fault.outcome if truncated else REFUSALS[fault.condition].code
    check_record(case, record, 1, status=200, outcome=fault.outcome, error_code=code)
    assert record["error_message"]
    assert record["input_tokens"] > 0 and record["output_tokens"] > 0
    assert 0 < check_charged(record) < bound_of(case)


def bound_of(case):
    """Dollars that a call may be held for: half its bytes in, the client's bound out."""
    size = len(repr(body_of(case)))
    return (size * Decimal(PRICE["input"]) / 2 + MAX_TOKENS * Decimal(PRICE["output"])) / 10**6


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
    "four broken, three asked": (["status=500"] * 4, 3, "E26"),
    "the most useful is told": (["status=429", "status=500", "status=401"], 3, "E26"),
    "the third answers": (["status=503", "reset_before_head", ""], 3, None),
    "a refusal ends it": (["status=500", "status=400", ""], 2, "E22"),
    "a time-out is retried when asked for": (["stall_before_head", ""], 2, None),
    "none is begun when the time is up": (["stall_before_head"] * 3, 2, "E28"),
}


@pytest.fixture(scope="module")
def chained(launch, vendor):
    """(gateway, the answer of each chain that is to come); each has a model of its own."""
    names = {label: label.replace(" ", "-").replace(",", "") for label in CHAINS}
    channels = [
        channel(f"{name}-{place}", CHAT, vendor.url,
                {name: f"script.{words}" if words else "demo-small"}, priority=9 - place)
        for label, name in names.items() for place, words in enumerate(CHAINS[label][0])
    ]  # fmt: skip
    channels += [
        channel("counts-first", MESSAGES, vendor.url, {"counts": "script.status=500"}, priority=1),
        channel("counts-second", MESSAGES, vendor.url, {"counts": "demo-small"}),
        channel("no-counts", MESSAGES, vendor.url, {"no-counts": "script.status=529"}),
        channel("usual", MESSAGES, vendor.url, {"usual": "demo-small"}),
    ]
    models = [*names.values(), "counts", "no-counts", "usual"]
    gateway = launch(document(models, channels), PATIENT_SETTINGS)
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        yield (
            gateway,
            {
                label: pool.submit(
                    post, gateway, PATHS[CHAT], CHAT, ask(CHAT, name, stream=bool(turn % 2))
                )
                for turn, (label, name) in enumerate(names.items())
            },
        )


def post(gateway, path, family, body):
    return exchange(gateway.port, "POST", path, credentials(family), body)


@pytest.mark.parametrize("label", CHAINS)
def test_how_many_channels_are_asked(chained, label):
    gateway, running = chained
    answer = running[label].result()
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


@pytest.mark.parametrize(("model", "attempts"), [("counts", 2), ("no-counts", 1)])
def test_a_token_count_fails_over_and_fails_as_a_call_does(chained, model, attempts):
    gateway, _ = chained
    body = ask(MESSAGES, model)
    del body["max_tokens"]
    answer = post(gateway, COUNT_PATH, MESSAGES, body)
    record = gateway.record(answer.call_id)
    assert len(record["attempts"]) == attempts and record["endpoint"] == COUNT_PATH
    check_free(record)
    if model == "counts":
        assert answer.status == 200 and answer.json["input_tokens"] > 0
        assert record["outcome"] == "ok"
    else:
        check_refusal(answer, MESSAGES, "E27")
        assert record["outcome"] == "upstream_error"


def test_a_redirect_is_not_followed(chained, vendor):
    gateway, _ = chained
    vendor.reset()
    body = ask(MESSAGES, "usual", "[[demo redirect]]", stream=True)
    check_refusal(post(gateway, PATHS[MESSAGES], MESSAGES, body), MESSAGES, "E30")
    assert [entry["path"] for entry in vendor.log()] == [PATHS[MESSAGES]]

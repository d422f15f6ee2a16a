"""Faults of an upstream in each phase: what the client sees, what is recorded, which channel is
asked next.

test_errors.py checks what each family says of a condition; tests/adapters/upstream_errors and
tests/handlers/relay check the reading of every status, body and broken stream. A case has a model
and channels of its own. All run at once before the first is checked, because many wait for a
time-out.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal

import pytest

from tests.support import dialects
from tests.support.client import data_of, events, exchange
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
GREETING = "Hello from the built-in demo upstream!"
CALLS_AT_ONCE = 24


@dataclass(frozen=True)
class Case:
    """One fault in one call: the vendor's script (or where the channel leads), and the expected
    result."""

    name: str
    condition: str | None  # None: the fault does no harm
    script: str
    family: str
    stream: bool = False
    fail_over: bool = False
    place: str = "vendor"
    retry_after: str | None = None  # if different from the table's
    outcome: str = "upstream_error"
    broken: bool = False  # the stream fails after its acceptance
    second: bool = True  # there is another channel
    free: bool = False  # although the stream was accepted

    @property
    def model(self):
        label = self.name if self.second else f"{self.name}, alone"
        return "".join(c if c.isalnum() else "-" for c in label)


def cases(*rows, **shared):
    """Return cases of (name, condition, script, fields); those with fail-over also without a
    second channel."""
    made = []
    for number, (name, condition, script, *more) in enumerate(rows):
        fields = {
            "family": dialects.ALL[number % len(dialects.ALL)],
            **shared,
            **(more[0] if more else {}),
        }
        made.append(Case(name, condition, script, **fields))
        if made[-1].fail_over:
            made.append(replace(made[-1], second=False))
    return made


TIMES_OUT = {"outcome": "timeout"}
TRUNCATED = {"outcome": "upstream_truncated"}
CASES = [
    *cases(
        ("no such host", "E29", "", {"place": "nowhere"}),
        ("no TLS", "E29", "", {"place": "tls"}),
        ("no HTTP", "E30", "", {"place": "nonsense"}),
        ("closed before the head", "E26", "close_before_head"),
        ("200 KB of headers", "E30", "big_headers=200"),
        ("429, wait 500", "E25", "status=429.retry_after=500", {"retry_after": "60"}),
        ("503, wait 9", "E27", "status=503.retry_after=9", {"retry_after": "9"}),
        ("redirect", "E30", "redirect"),
        ("200 empty", "E30", "empty200"),
        ("200 with nothing in it", "E30", "nothing"),
        ("events with nothing in them", "E30", "nothing.other_form"),
        ("200 error of an overload", "E27", "error200.type=overloaded_error"),
        ("gzip bomb", "E30", "gzip_bomb"),
        ("flood without an end", "E30", "flood=2"),
        ("cut within", "E26", "cut=50"),
        ("half a JSON", "E30", "clean_end=50"),
        ("nothing after the head", "E30", "clean_end=0", {"stream": True}),
        ("reset after the head", "E26", "reset=0", {"stream": True}),
        ("behind comments", "E27", "comments.error_event=0.type=overloaded_error",
         {"stream": True}),
        fail_over=True,
    ),
    *cases(
        ("504", "E28", "status=504", TIMES_OUT),
        ("silent within", "E28", "stall=50", TIMES_OUT),
        ("silent after the head", "E28", "stall_after_head", {"stream": True, **TIMES_OUT}),
        ("20 KB of headers", None, "big_headers=20"),
        ("gzip", None, "gzip", {"stream": True}),
        ("slowly", None, "slow_body"),
        *((f"{name}, {'streamed' if stream else 'whole'}", None, words, {"stream": stream})
          for stream in (True, False) for name, words in (
              ("no type", "no_type"), ("other form", "other_form"),
              ("other form, no type", "other_form.no_type"), ("empty data", "empty_data"))),
    ),
    *cases(  # after the first text
        ("cut, CRLF", "E26", "crlf.cut=6", TRUNCATED),
        ("cut, gzip", "E26", "gzip.cut=6", TRUNCATED),
        ("silent", "E28", "stall=6", TIMES_OUT),
        ("garbage", "E30", "garbage=6"),
        ("rate limit", "E25", "error_event=6.type=rate_limit_error"),
        ("nothing in it", "E30", "nothing", {"free": True}),
        ("no last event", "E26", "no_done", {"family": dialects.MESSAGES, **TRUNCATED}),
        stream=True, broken=True,
    ),
    *cases(  # faults after the marker have no effect
        ("no marker", None, "no_done"),
        ("reset behind the marker", None, "reset=999", {"family": dialects.RESPONSES}),
        ("silent behind the marker", None, "stall=999", {"family": dialects.MESSAGES}),
        stream=True,
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def played(launch, vendor, places, nonsense):
    """Yield played(case), which returns (gateway, what the client saw); all cases run at the same
    time."""
    tls = vendor.url.replace("http:", "https:")
    more = {"tls": tls, "nowhere": "http://nowhere.invalid", "nonsense": nonsense.url}
    channels = [one for case in CASES for one in channels_of(case, places | more)]
    gateway = launch(document([case.model for case in CASES], channels), SETTINGS)
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        running = {case: pool.submit(play, gateway.port, case) for case in CASES}
        yield lambda case: (gateway, running[case].result())


def channels_of(case, places):
    models = {case.model: f"script.{case.script}" if case.script else "demo-small"}
    url = places[case.place]
    made = [channel(f"{case.model}-first", case.family, url, models, priority=5)]
    if case.second:
        spare = {case.model: "demo-small"}
        made.append(channel(f"{case.model}-second", case.family, places["vendor"], spare))
    return made


def body_of(case):
    more = (
        {"stream_options": {"include_usage": True}}
        if case.family == dialects.CHAT and case.stream
        else {}
    )
    return dialects.ask(case.family, case.model, f"case {case.model}", case.stream, **more)


def play(port, case):
    path = dialects.path_of(case.family, case.model, case.stream)
    return exchange(port, "POST", path, dialects.credentials(case.family), body_of(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
def test_a_fault_is_told_recorded_and_charged_rightly(case, played):
    gateway, answer = played(case)
    record = gateway.record(answer.call_id)
    if case.broken:
        check_broken(case, answer, record)
    elif case.condition is None or (case.second and case.fail_over):
        check_answered(case, answer, record)
    else:
        check_failed(case, answer, record)


def check_record(case, record, attempts, **fields):
    names = [f"{case.model}-first", f"{case.model}-second"][:attempts]
    assert [attempt["channel"] for attempt in record["attempts"]] == names
    # In the record's form: the path without query, the model's name replaced.
    endpoint = dialects.path_of(case.family, "{model}", case.stream).partition("?")[0]
    fields |= {"channel": names[-1], "model": case.model, "endpoint": endpoint,
               "family": case.family, "stream": case.stream}  # fmt: skip
    assert {name: record[name] for name in fields} == fields
    assert record["duration_ms"] >= 0
    assert all(attempt["ms"] >= 0 for attempt in record["attempts"])


def check_answered(case, answer, record):
    """Check that the client got a whole answer, from the second channel if the first one failed."""
    failed_over = case.condition is not None
    assert answer.status == 200, answer.body
    dialects.check_ids(answer)
    assert answer.whole and "content-encoding" not in answer.headers
    if case.stream and (case.name != "no marker" or case.family == dialects.GENERATE):
        dialects.check_whole_stream(answer)
    assert dialects.text_of(case.family, answer.body).startswith(GREETING)
    check_record(case, record, 2 if failed_over else 1, status=200, outcome="ok", error_code=None,
                 usage_source="reported")  # fmt: skip
    assert 0 < check_charged(record) < bound_of(case) and record["output_tokens"] > 0
    first, *_, last = [record["attempts"][0], *record["attempts"]]
    assert (last["error"], last["status"]) == (None, 200)
    assert bool(first["error"]) is failed_over


def check_failed(case, answer, record):
    """Check that nothing was delivered: the family's error with its status, and no charge."""
    waits = {"retry_after": case.retry_after} if case.retry_after else {}
    message = dialects.check_refusal(answer, case.family, case.condition, **waits)
    for secret in (UPSTREAM_KEY, "127.0.0.1", "nowhere.invalid", "http"):
        assert secret not in message
    code = dialects.REFUSALS[case.condition].code
    check_record(case, record, 1, status=answer.status, outcome=case.outcome, error_code=code)
    assert record["attempts"][0]["error"] and record["error_message"]
    check_free(record)


def check_broken(case, answer, record):
    """Check a stream that broke: what had come stays, one error event follows, and no other
    channel is asked."""
    dialects.check_stream_failure(answer, case.family, case.condition)
    first, *others = events(answer.body)
    assert not dialects.is_error(first) and len(others) > 1
    assert [data_of(event) for event in (first, *others[:-1])]  # each can be decoded
    truncated = case.outcome == "upstream_truncated"
    code = case.outcome if truncated else dialects.REFUSALS[case.condition].code
    check_record(case, record, 1, status=200, outcome=case.outcome, error_code=code)
    assert record["error_message"]
    if case.free:
        check_free(record)
        return
    assert record["input_tokens"] > 0 and record["output_tokens"] > 0
    assert 0 < check_charged(record) < bound_of(case)


def bound_of(case):
    """Return a call's largest hold in dollars: half its bytes as input, the client's bound as
    output."""
    size = len(repr(body_of(case)))
    return (
        size * Decimal(PRICE["input"]) / 2 + dialects.MAX_TOKENS * Decimal(PRICE["output"])
    ) / 10**6


# ---- how many channels are asked -----------------------------------------------------------------

PATIENT_SETTINGS = {
    **SETTINGS,
    "routing.max_attempts": 3,
    "routing.total_time_s": 4,  # attempts that time out take 2 to 3 s
    "routing.retry_timeouts": "true",
}
CHAINS = {
    # model: (scripts of its channels in order, how many are asked, condition; None: one answers)
    "the most useful is told": (["status=429", "status=500", "status=401", ""], 3, "E26"),
    "a time-out is retried when asked for": (["stall_before_head", ""], 2, None),
    "none is begun when the time is up": (["stall_before_head"] * 3, 2, "E28"),
}


@pytest.fixture(scope="module")
def chained(launch, vendor):
    """Yield (gateway, function that returns the answer of a chain); each chain has a model of its
    own."""
    names = {label: label.replace(" ", "-").replace(",", "") for label in CHAINS}
    channels = [
        channel(f"{name}-{place}", dialects.CHAT, vendor.url,
                {name: f"script.{words}" if words else "demo-small"}, priority=9 - place)
        for label, name in names.items() for place, words in enumerate(CHAINS[label][0])
    ]  # fmt: skip
    gateway = launch(document(names.values(), channels), PATIENT_SETTINGS)
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        running = {
            label: pool.submit(
                exchange, gateway.port, "POST", dialects.PATHS[dialects.CHAT],
                    dialects.credentials(dialects.CHAT),
                dialects.ask(dialects.CHAT, name, stream=bool(turn % 2)),
            )
            for turn, (label, name) in enumerate(names.items())
        }  # fmt: skip
        yield gateway, running


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
        assert dialects.text_of(dialects.CHAT, answer.body).startswith(GREETING)
    else:
        dialects.check_refusal(answer, dialects.CHAT, condition)
        assert record["error_code"] == dialects.REFUSALS[condition].code

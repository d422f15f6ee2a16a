"""Usage as vendors report it and the resulting charge: once in every family.

The counts are written here by hand, so that they, and the costs calculated from them, are known
beforehand. Each case has a wallet of its own.
"""

import itertools
import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

import pytest

from store.values.pricing import format_money
from store.values.usage import SIDES
from tests.support import dialects
from tests.support.chat_streams import spelt
from tests.support.client import exchange
from tests.support.documents import channel
from tests.support.upstream import SAMPLES, RawUpstream
from tests.support.wallets import COUNTS, check_charged, joined, owners, secret_of

CREDIT = "100"
TEXT = "Tea is ready: three cups, one pot - enjoy."
TEXT_TOKENS = 11  # about four characters each
TINY_CREDIT = "0.006"  # covers the hold of one call
CALLS_AT_ONCE = 12
PLAIN, STREAM = "plain", "stream"

# ---- models --------------------------------------------------------------------------------------

ALL_PRICES = {
    "input": "3.000000007", "output": "15.1", "cache_read": "0.3", "cache_write": "3.75",
    "cache_write_1h": "6.2", "reasoning": "17", "call": "0.001",
}  # fmt: skip
TWO_PRICES = {"input": "3", "output": "15"}
DETAILED, SIMPLE, WINDOWED = "detailed", "simple", "windowed"
WINDOW, MOST_OUTPUT = 2000, 500
MODELS = [
    {"name": DETAILED, "price": ALL_PRICES},
    {"name": SIMPLE, "price": TWO_PRICES},
    {"name": WINDOWED, "price": TWO_PRICES, "context_tokens": WINDOW,
     "max_output_tokens": MOST_OUTPUT},
]  # fmt: skip
BIG = 2**31 - 1  # the highest count that is accepted as one
MULTIPLIERS = {"all": "1", "odd": "0.333333"}

# ---- usage in each family's form -----------------------------------------------------------------


EVERYTHING = {
    dialects.CHAT: {
        "prompt_tokens": 1000, "completion_tokens": 250, "total_tokens": 1250,
        "prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 150},
        "completion_tokens_details": {"reasoning_tokens": 90},
    },
    dialects.RESPONSES: {
        "input_tokens": 1000, "output_tokens": 250, "total_tokens": 1250,
        "input_tokens_details": {
            "cached_tokens": 600, "cache_write_tokens": 150,
            "cache_write_tokens_details": {"ttl_30m_tokens": 100, "ttl_12h_tokens": 50},
        },
        "output_tokens_details": {"reasoning_tokens": 90},
    },
    dialects.MESSAGES: {
        "input_tokens": 250, "output_tokens": 250, "cache_read_input_tokens": 600,
        "cache_creation_input_tokens": 150,
        "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 50},
        "output_tokens_details": {"thinking_tokens": 90},
    },
    dialects.GENERATE: {
        "promptTokenCount": 850, "candidatesTokenCount": 160, "thoughtsTokenCount": 90,
        "cachedContentTokenCount": 600, "totalTokenCount": 1100,
    },
}  # fmt: skip
# In the order of COUNTS. Some families do not report the kinds of cache writes, or no cache
# writes.
EVERYTHING_COUNTED = {
    dialects.CHAT: (250, 160, 600, 150, 0, 90),
    dialects.RESPONSES: (250, 160, 600, 100, 50, 90),
    dialects.MESSAGES: (250, 160, 600, 100, 50, 90),
    dialects.GENERATE: (250, 160, 600, 0, 0, 90),
}


def answer_with(family, stream, usage):
    """Return a sample with this usage in all places where it reports its own; None: without
    usage."""
    kind, ending = (b"text/event-stream", "sse") if stream else (b"application/json", "json")
    data = (SAMPLES / family / f"cached_usage.{ending}").read_text().replace("—", "-")
    name = '"usageMetadata":' if family == dialects.GENERATE else '"usage":'
    for match in reversed(list(re.finditer(name + r"\s*(?=\{)", data))):
        _, end = json.JSONDecoder().raw_decode(data, match.end())
        reported = f"{name}{json.dumps(usage)}" if usage else '"odd":0'
        data = data[: match.start()] + reported + data[end:]
    body = data.encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (kind, len(body)) + body


MARK = re.compile(rb"\[([a-z0-9-]+)\]")


# ---- cases ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """The usage reported in one call, and the counts to expect. `name` is also its owner."""

    what: str
    family: str
    mode: str
    usage: dict | None
    counts: tuple | None = None  # None: estimated
    told: bool = False  # the record keeps the vendor's own usage object
    model: str = SIMPLE
    group: str = "all"
    credit: str = CREDIT

    @property
    def name(self):
        family = self.family.replace("_", "-")
        return f"{self.what} {family} {self.mode}".replace(" ", "-").lower()

    @property
    def stream(self):
        return self.mode == STREAM


def in_each(what, usage, counts=None, **more):
    """Return a case for each family, plain and streamed in turn; `usage` and `counts` by the
    family."""
    modes = itertools.cycle((PLAIN, STREAM))
    return [
        Case(what, family, next(modes), usage(family), counts and counts(family), **more)
        for family in dialects.ALL
    ]


# tests/handlers/relay/test_settle.py checks which counts are accepted.
USAGE_CASES = [
    *in_each("everything", EVERYTHING.get, EVERYTHING_COUNTED.get, model=DETAILED, group="odd"),
    *in_each("two prices", EVERYTHING.get, EVERYTHING_COUNTED.get),
    *in_each("nothing at a price per call", lambda _: None, model=DETAILED),
    *in_each("beyond a small wallet", lambda f: spelt(f, BIG, BIG),
             lambda _: (WINDOW + WINDOW // 16, 16 * MOST_OUTPUT, 0, 0, 0, 0), told=True,
             model=WINDOWED, credit=TINY_CREDIT),
    *in_each("a word", lambda f: spelt(f, 7, "NaN"), told=True),
]  # fmt: skip
BY_NAME = {case.name: case for case in USAGE_CASES}
assert len(BY_NAME) == len(USAGE_CASES)


def answer_to(request):
    """Return the answer of the case whose name is in brackets in the request."""
    case = BY_NAME[MARK.search(request)[1].decode()]
    return answer_with(case.family, case.stream, case.usage)


@pytest.fixture(scope="module")
def speaker():
    with RawUpstream(answer_to) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(launch, speaker):
    names = [model["name"] for model in MODELS]
    channels = [
        channel(f"{name}-{family}", family, speaker.url, {name: "demo-small"},
                groups=list(MULTIPLIERS))
        for name in names for family in dialects.ALL
    ]  # fmt: skip
    made = {
        "model": MODELS,
        "group": [{"name": name, "multiplier": ppm} for name, ppm in MULTIPLIERS.items()],
        "channel": channels,
    }
    people = [owners([case.name], case.credit, group=case.group) for case in USAGE_CASES]
    return launch(joined(made, *people), shared=False)


@pytest.fixture(scope="module")
def answered(gateway):
    """Return the answer of each case; all calls run at the same time."""
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        running = {case.name: pool.submit(call, gateway, case) for case in USAGE_CASES}
        return {name: one.result() for name, one in running.items()}


def call(gateway, case):
    body = dialects.ask(case.family, case.model, f"[{case.name}]", case.stream)
    path = dialects.path_of(case.family, case.model, case.stream)
    return exchange(
        gateway.port, "POST", path, dialects.credentials(case.family, secret_of(case.name)), body
    )


def expected_cost(counts, prices, multiplier):
    """Calculate the cost independently: tokens times prices, in nanos per million tokens, rounded
    up once to a nano."""
    names = list(COUNTS)
    defaults = {"cache_read": "input", "cache_write": "input", "cache_write_1h": "cache_write",
                "reasoning": "output"}  # fmt: skip

    def price(name):
        while name not in prices:
            name = defaults[name]
        return Fraction(prices[name])

    tokens = sum(count * price(name) for count, name in zip(counts, names, strict=True))
    exact = (tokens / 10**6 + Fraction(prices.get("call", 0))) * Fraction(multiplier)
    return math.ceil(exact * 10**9)


@pytest.mark.parametrize("case", USAGE_CASES, ids=lambda case: case.name)
def test_what_is_reported_is_what_is_charged(case, gateway, wallets, answered):
    answer = answered[case.name]
    assert answer.status == 200 and answer.whole, answer.body
    assert dialects.text_of(case.family, answer.body) == TEXT
    record = gateway.record(answer.call_id)
    counts = tuple(record[name] for name in COUNTS.values())
    if case.counts is not None:
        assert (counts, record["usage_source"]) == (case.counts, "reported")
    else:
        assert record["usage_source"] == "estimated"
        given, output, *others = counts
        assert output == TEXT_TOKENS and others == [0] * 4
        # The estimate follows the request's size: about four bytes a token.
        assert 10 < given < 100
    prices = ALL_PRICES if case.model == DETAILED else TWO_PRICES
    nanos = expected_cost(counts, prices, MULTIPLIERS[case.group])
    assert record["cost"] == format_money(nanos)
    assert record["multiplier"] == MULTIPLIERS[case.group]
    counted = {name for name, count in zip(SIDES, counts, strict=True) if count}
    assert set(record["prices"]) == counted | ({"call"} & set(prices))
    own = record["prices"].keys() & prices
    assert {name: record["prices"][name] for name in own} == {name: prices[name] for name in own}
    check_charged(record)
    wallets.check(case.name, case.credit, [record])
    assert record["reported_usage"] == (case.usage if case.told else None)


def test_every_cost_can_be_worked_out_again(gateway, answered):
    gateway.run("usage", "verify")
    gateway.run("books", "verify")

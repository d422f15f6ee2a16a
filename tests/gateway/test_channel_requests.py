"""Requests as a channel receives them: the channel's own edits, applied before hold and features;
without fields that its server does not know; with headers removed; with time-outs of its own."""

import contextlib
import json
import time

import pytest

from tests.support.client import exchange
from tests.support.dialects import CHAT, MESSAGES, PATHS, RESPONSES, ask, credentials
from tests.support.documents import channel, document
from tests.support.echo import GOOD, Echo, answer_of
from tests.support.wallets import joined, owners, secret_of

PRICE = {"input": "0", "output": "10"}  # for a million tokens
POOR = "0.002"  # 200 tokens: less than the minimum for a call without a bound
PRIORITY = {"service_tier": "priority"}
# A translation writes one of these.
SHORT = {"max_tokens": 100, "max_completion_tokens": 100}
EDITS = {
    "cheap": {"set": SHORT},
    "dear": {"set": {"max_completion_tokens": 100_000}},
    "plain": {"remove": ["service_tier"], "default": {"temperature": 0.5, "top_p": 1}},
    "prior": {"set": PRIORITY},
    "failing": {"set": SHORT},
}


def refusing(request):
    """Answer like a server that knows neither of two fields."""
    unknown = [name for name in ("prompt_cache_key", "logit_bias") if f'"{name}"' in request]
    message = "".join(f"{name}: Extra inputs are not permitted" for name in unknown)
    return answer_of(400, {"detail": message}) if unknown else GOOD


NINE_S = {"first_byte_timeout_s": 9}


def late(request):
    time.sleep(3)
    return GOOD


@pytest.fixture(scope="module")
def upstreams():
    """Yield the upstream of each model's channel, by model."""
    with contextlib.ExitStack() as stack:
        names = [*EDITS, "second", "strict", "late", "slow", "headers"]
        opened = {name: stack.enter_context(contextlib.closing(Echo())) for name in names}
        opened["failing"].answer = answer_of(500, {"error": {"message": "broken"}})
        opened["strict"].answer = refusing
        opened["late"].answer = opened["slow"].answer = late
        yield opened


@pytest.fixture(scope="module")
def gateway(launch, upstreams):
    def at(name, model, **fields):
        return channel(name, CHAT, upstreams[name].url, {model: "up"}, **fields)

    channels = [at(name, name, body=edits, priority=1) for name, edits in EDITS.items()]
    channels += [
        at("second", "failing"),
        at("strict", "strict"),
        at("late", "late", first_byte_timeout_s=1, retry_timeouts=True, priority=1),
        at("slow", "slow", first_byte_timeout_s=1, model_times={"slow": NINE_S}),
        at("headers", "headers", vendor="openai", remove_headers=["OpenAI-Beta"]),
        channel("after-late", CHAT, upstreams["second"].url, {"late": "up"}),
    ]  # fmt: skip
    names = [*EDITS, "strict", "late", "slow", "headers"]
    base = document(names, channels)
    base["model"] = [{"name": name, "price": PRICE} for name in names]
    base["group"] = [{"name": "all", "features": ["*", "-tier.priority"]}]
    return launch(joined(base, owners(["poor"], POOR)), shared=False)


def call(gateway, model, who=None, family=CHAT, **fields):
    secret = secret_of(who) if who else None
    headers = credentials(family, secret) if secret else credentials(family)
    return exchange(gateway.port, "POST", PATHS[family], headers, ask(family, model, **fields))


def last_body(upstream):
    return json.loads(upstream.requests[-1].partition("\r\n\r\n")[2])


def test_a_request_is_edited_in_the_family_of_its_channel(gateway, upstreams):
    assert call(gateway, "plain", temperature=0.1, top_p=None).status == 200
    assert last_body(upstreams["plain"]) == {
        **ask(CHAT, "up"),
        "temperature": 0.1,
        "top_p": 1,
    }
    assert call(gateway, "plain", family=MESSAGES).status == 200
    body = last_body(upstreams["plain"])
    assert (body["temperature"], body["top_p"], body["model"]) == (0.5, 1, "up")


def test_what_is_held_goes_by_the_edited_request(gateway, upstreams):
    for family in (CHAT, MESSAGES):
        assert call(gateway, "cheap", "poor", family, max_tokens=90_000).status == 200
        assert last_body(upstreams["cheap"])["max_completion_tokens"] == 100
        assert call(gateway, "dear", "poor", family, max_tokens=10).status in (402, 429)
    assert upstreams["dear"].requests == []


def test_before_a_call_fails_over_more_is_held(gateway, upstreams):
    asked = len(upstreams["second"].requests)
    assert call(gateway, "failing", "poor", max_tokens=90_000).status == 502
    assert len(upstreams["second"].requests) == asked
    assert call(gateway, "failing", max_tokens=90_000).status == 200
    assert last_body(upstreams["second"])["max_tokens"] == 90_000


def test_features_are_those_of_the_edited_request(gateway, upstreams):
    assert call(gateway, "plain", **PRIORITY).status == 200
    assert "service_tier" not in last_body(upstreams["plain"])
    assert call(gateway, "cheap", **PRIORITY).status == 403
    refused = call(gateway, "prior")
    assert (refused.status, refused.json["error"]["code"]) == (403, "feature_not_allowed")
    assert upstreams["prior"].requests == []


def test_a_field_that_only_tunes_is_left_out_when_it_is_refused(gateway, upstreams):
    asked = upstreams["strict"].requests
    answers = [call(gateway, "strict", prompt_cache_key="mine") for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert all(answer.headers["x-sluice-dropped"] == "prompt_cache_key" for answer in answers)
    assert ["prompt_cache_key" in request for request in asked] == [True, False, False]
    records = [gateway.tail.record(answer.headers["x-request-id"]) for answer in answers]
    dropped = [[one.get("dropped") for one in record["attempts"]] for record in records]
    assert dropped == [[None, ["prompt_cache_key"]], [["prompt_cache_key"]]]
    translated = call(gateway, "strict", family=RESPONSES, prompt_cache_key="mine")
    assert translated.headers["x-sluice-dropped"] == "prompt_cache_key"
    assert call(gateway, "strict", logit_bias={"1": 1}).status == 400
    assert "x-sluice-dropped" not in call(gateway, "strict").headers
    assert len(asked) == 6


def test_time_outs_of_a_channel_and_of_a_model(gateway):
    begun = time.monotonic()
    assert call(gateway, "late").status == 200
    assert time.monotonic() - begun < 3
    assert call(gateway, "slow").status == 200


def test_headers_that_a_channel_does_not_send(gateway, upstreams):
    more = {"openai-beta": "x", "openai-project": "p"}
    body = ask(CHAT, "headers")
    assert exchange(gateway.port, "POST", PATHS[CHAT], credentials() | more, body).status == 200
    head = upstreams["headers"].requests[-1].lower()
    assert "openai-project: p" in head and "openai-beta" not in head


def test_a_test_of_a_channel_shows_the_address_and_sends_what_calls_send(gateway, upstreams):
    url = f"{upstreams['cheap'].url}/v1/chat/completions"
    assert json.loads(gateway.run("channel", "test", "cheap", "--json"))["address"] == url
    assert last_body(upstreams["cheap"])["max_tokens"] == 100
    assert json.loads(gateway.run("channel", "show", "cheap", "--json"))["address"] == url

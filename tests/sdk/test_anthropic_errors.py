"""Each way to fail, seen through the anthropic SDK: exception, number of calls, headers, record."""

from typing import Any

import anthropic
import httpx2
import pytest

from tests.sdk.conditions import (
    JSON,
    MESSAGES,
    RETRIES,
    SEEN_HEADERS,
    Ask,
    Outcome,
    asks_of,
    check_trace,
    extra_headers,
    headers_of,
    late_body,
    perform_all,
)
from tests.sdk.world import TIMEOUT_S, Wire, World

FAMILY = "messages"
ASKS = asks_of(FAMILY)


def perform(world: World, ask: Ask, tag: str) -> Outcome:
    wire = Wire()
    key = ask.secret or world.keys[ask.key]
    base = ask.base[FAMILY] if ask.base else ""
    headers = headers_of(ask, key, tag, anthropic.omit)
    with (
        httpx2.Client(transport=wire, timeout=TIMEOUT_S) as http,
        anthropic.Anthropic(
            api_key=key, base_url=world.base_url + base, max_retries=RETRIES, http_client=http
        ) as client,
        pytest.raises(anthropic.APIError) as caught,
    ):
        path = ask.path[FAMILY] if ask.path else "/v1/messages"
        if ask.method == "get":
            client.get(path, cast_to=object, options={"headers": headers})
        elif ask.content is not None or ask.path:
            raw = {"Content-Type": JSON, **headers}
            content = b"{}" if ask.content is None else ask.content_for(FAMILY)
            client.post(path, content=content, cast_to=object, options={"headers": raw})
        else:
            messages: Any = [{"role": "user", "content": f"{tag} {ask.prompt}"}]
            client.messages.create(
                model=ask.model,
                max_tokens=100,
                messages=messages,
                stream=ask.stream,
                extra_headers=headers,
                extra_body=dict(ask.body),
            )
    return Outcome(tag, caught.value, wire.answers)


@pytest.fixture(scope="module")
def outcomes(world):
    return perform_all(world, FAMILY, perform)


@pytest.fixture(scope="module")
def records(world, outcomes):
    return world.records()


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.name)
def test_raises(ask, outcomes):
    outcome = outcomes[ask.name]
    status, kind, raised, calls = MESSAGES[ask.condition]
    error = outcome.raised
    assert type(error).__name__ == raised
    assert (error.status_code, error.type) == (status, kind)
    assert [answered for answered, _ in outcome.answers] == [status] * calls
    assert ask.says_for(FAMILY) in error.api_message
    assert set(error.body) == {"type", "error", "request_id"}
    assert error.body["type"] == "error"


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.name)
def test_headers(ask, outcomes):
    outcome = outcomes[ask.name]
    assert outcome.answers
    for _, headers in outcome.answers:
        assert headers["content-type"] == "application/json"
        assert headers["request-id"] == headers["x-request-id"]
        seen = {name: headers[name] for name in SEEN_HEADERS if name in headers}
        assert seen == extra_headers(ask)
    last = outcome.answers[-1][1]["request-id"]
    assert outcome.raised.request_id == outcome.raised.body["request_id"] == last


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.name)
def test_leaves_its_trace(ask, world, outcomes, records):
    check_trace(world, ask, outcomes[ask.name], records)


def test_fields_are_named_as_the_family_writes_them(outcomes):
    said = {name: outcome.raised.api_message for name, outcome in outcomes.items()}
    assert said["E10 missing"] == "model: field required"
    assert said["E13 max_tokens"] == "max_tokens: field required"
    assert said["E12 words are a number"].startswith("messages: expected")


def test_a_body_that_does_not_come(world):
    """E36."""
    status, headers, told = late_body(world, "/v1/messages")
    assert (status, headers["connection"]) == (408, "close")
    assert (told["type"], told["error"]["type"]) == ("error", "timeout_error")
    assert told["request_id"] == headers["request-id"]
    record = world.gateway.record(headers["request-id"])
    assert (record["outcome"], record["error_code"]) == ("refused", "request_timeout")


def test_no_ask_is_missing():
    assert {ask.condition for ask in ASKS} == set(MESSAGES)

"""Each way to fail, seen through the openai SDK: exception, number of calls, headers, record."""

from typing import Any

import httpx2
import openai
import pytest

from tests.sdk.conditions import (
    CHAT,
    JSON,
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

FAMILY = "chat_completions"
ASKS = asks_of(FAMILY)


def perform(world: World, ask: Ask, tag: str) -> Outcome:
    wire = Wire()
    key = ask.secret or world.keys[ask.key]
    base = ask.base[FAMILY] if ask.base else "/v1"
    headers = headers_of(ask, key, tag, openai.omit)
    with (
        httpx2.Client(transport=wire, timeout=TIMEOUT_S) as http,
        openai.OpenAI(
            api_key=key, base_url=world.base_url + base, max_retries=RETRIES, http_client=http
        ) as client,
        pytest.raises(openai.APIError) as caught,
    ):
        path = ask.path[FAMILY] if ask.path else "/chat/completions"
        if ask.method == "get":
            client.get(path, cast_to=object, options={"headers": headers})
        elif ask.content is not None or ask.path:
            raw = {"Content-Type": JSON, **headers}
            content = ask.content or b"{}"
            content = b"" if ask.content == b"" else content
            client.post(path, content=content, cast_to=object, options={"headers": raw})
        else:
            messages: Any = [{"role": "user", "content": f"{tag} {ask.prompt}"}]
            client.chat.completions.create(
                model=ask.model,
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
    status, kind, code, raised, calls = CHAT[ask.condition]
    error = outcome.raised
    assert type(error).__name__ == raised
    assert (error.status_code, error.type, error.code) == (status, kind, code)
    assert [answered for answered, _ in outcome.answers] == [status] * calls
    assert ask.says in error.message
    assert set(error.body) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.name)
def test_headers(ask, outcomes):
    outcome = outcomes[ask.name]
    for _, headers in outcome.answers:
        assert headers["content-type"] == "application/json"
        assert headers["request-id"] == headers["x-request-id"]
        seen = {name: headers[name] for name in SEEN_HEADERS if name in headers}
        assert seen == extra_headers(ask)
    assert outcome.raised.request_id == outcome.answers[-1][1]["x-request-id"]


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.name)
def test_leaves_its_trace(ask, world, outcomes, records):
    check_trace(world, ask, outcomes[ask.name], records)


def test_param_names_the_field(outcomes):
    by_condition = {name[:3]: outcome.raised.param for name, outcome in outcomes.items()}
    assert by_condition["E08"] == by_condition["E10"] == "model"
    assert by_condition["E21"] == by_condition["E13"] == "messages"
    assert outcomes["E12 messages are text"].raised.param == "messages"


def test_a_body_that_does_not_come(world):
    """E36."""
    status, headers, told = late_body(world, "/v1/chat/completions")
    assert (status, headers["connection"]) == (408, "close")
    error = told["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "request_timeout")
    record = world.gateway.record(headers["x-request-id"])
    assert (record["status"], record["outcome"]) == (408, "refused")
    assert record["error_code"] == "request_timeout"


def test_no_ask_is_missing():
    assert {ask.condition for ask in ASKS} == set(CHAT)

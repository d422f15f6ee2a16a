"""Each way to fail, seen through the openai SDK: exception, number of calls, headers, record."""

from typing import Any

import httpx2
import openai
import pytest

from tests.sdk.conditions import (
    CHAT,
    JSON,
    RESPONSES,
    RETRIES,
    SEEN_HEADERS,
    Ask,
    C,
    Outcome,
    R,
    asks_of,
    check_trace,
    extra_headers,
    headers_of,
    late_body,
    perform_all,
)
from tests.sdk.world import TIMEOUT_S, Wire, World

TABLES = {C: CHAT, R: RESPONSES}
PATHS = {C: "/chat/completions", R: "/responses"}
CASES = [(family, ask) for family in TABLES for ask in asks_of(family)]
every_case = pytest.mark.parametrize(
    ("family", "ask"), CASES, ids=[f"{family} {ask.name}" for family, ask in CASES]
)


def perform(family: str, world: World, ask: Ask, tag: str) -> Outcome:
    wire = Wire()
    key = ask.secret or world.keys[ask.key]
    base = ask.base[family] if ask.base else "/v1"
    headers = headers_of(ask, key, tag, openai.omit)
    with (
        httpx2.Client(transport=wire, timeout=TIMEOUT_S) as http,
        openai.OpenAI(
            api_key=key, base_url=world.base_url + base, max_retries=RETRIES, http_client=http
        ) as client,
        pytest.raises(openai.APIError) as caught,
    ):
        path = ask.path[family] if ask.path else PATHS[family]
        if ask.method == "get":
            client.get(path, cast_to=object, options={"headers": headers})
        elif ask.content is not None or ask.path:
            raw = {"Content-Type": JSON, **headers}
            content = b"{}" if ask.content is None else ask.content_for(family)
            client.post(path, content=content, cast_to=object, options={"headers": raw})
        else:
            create(client, family, ask, f"{tag} {ask.prompt}", headers)
    return Outcome(tag, caught.value, wire.answers)


def create(client: openai.OpenAI, family: str, ask: Ask, prompt: str, headers: Any) -> None:
    """The call as people make it."""
    asked: Any = {"model": ask.model, "stream": ask.stream}
    asked |= {"extra_headers": headers, "extra_body": dict(ask.body)}
    if family == R:
        client.responses.create(input=prompt, **asked)
    else:
        client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **asked)


@pytest.fixture(scope="module")
def outcomes(world):
    def performer(family):
        return lambda *args: perform(family, *args)

    return {family: perform_all(world, family, performer(family)) for family in TABLES}


@pytest.fixture(scope="module")
def records(world, outcomes):
    return world.records()


@every_case
def test_raises(family, ask, outcomes):
    outcome = outcomes[family][ask.name]
    status, kind, code, raised, calls = TABLES[family][ask.condition]
    error = outcome.raised
    assert type(error).__name__ == raised
    assert (error.status_code, error.type, error.code) == (status, kind, code)
    assert [answered for answered, _ in outcome.answers] == [status] * calls
    assert ask.says_for(family) in error.message
    assert set(error.body) == {"message", "type", "param", "code"}


@every_case
def test_headers(family, ask, outcomes):
    outcome = outcomes[family][ask.name]
    assert outcome.answers
    for _, headers in outcome.answers:
        assert headers["content-type"] == "application/json"
        assert headers["request-id"] == headers["x-request-id"]
        seen = {name: headers[name] for name in SEEN_HEADERS if name in headers}
        assert seen == extra_headers(ask)
    assert outcome.raised.request_id == outcome.answers[-1][1]["x-request-id"]


@every_case
def test_leaves_its_trace(family, ask, world, outcomes, records):
    check_trace(world, ask, outcomes[family][ask.name], records)


@pytest.mark.parametrize(("family", "field"), [(C, "messages"), (R, "input")])
def test_param_names_the_field(outcomes, family, field):
    params = {name: outcome.raised.param for name, outcome in outcomes[family].items()}
    assert params["E08 unknown name"] == params["E10 missing"] == "model"
    assert params["E12 words are a number"] == params["E13 no words"] == field
    if family == R:
        assert params["E35 what came before"] == "previous_response_id"
        assert params["E14 in the background"] == "background"


@pytest.mark.parametrize("family", TABLES)
def test_a_body_that_does_not_come(world, family):
    """E36."""
    status, headers, told = late_body(world, "/v1" + PATHS[family])
    assert (status, headers["connection"]) == (408, "close")
    error = told["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "request_timeout")
    record = world.gateway.record(headers["x-request-id"])
    assert (record["status"], record["outcome"]) == (408, "refused")
    assert record["error_code"] == "request_timeout"


@pytest.mark.parametrize("family", TABLES)
def test_no_ask_is_missing(family):
    assert {ask.condition for ask in asks_of(family)} == set(TABLES[family])

"""Each way to fail, seen through the official SDKs: exception, number of calls, headers, record.

The SDK of google-genai repeats nothing unless it is told to, as it is here. What it cannot be made
to send (other bytes, paths, credentials) is put into the request on its way.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors, types

from tests.sdk.conditions import (
    CALL,
    CHAT,
    GENERATE,
    JSON,
    MESSAGES,
    RESPONSES,
    RETRIES,
    SEEN_HEADERS,
    Ask,
    C,
    G,
    M,
    Outcome,
    R,
    asks_of,
    check_trace,
    extra_headers,
    headers_of,
    late_body,
    perform_all,
)
from tests.sdk.world import TIMEOUT_S, TLS, Wire, World

TABLES = {C: CHAT, R: RESPONSES, M: MESSAGES, G: GENERATE}
PATHS = {C: "/chat/completions", R: "/responses"}
LATE_PATHS = {C: "/v1/chat/completions", R: "/v1/responses", M: "/v1/messages", G: CALL}
CASES = [(family, ask) for family in TABLES for ask in asks_of(family)]
every_case = pytest.mark.parametrize(
    ("family", "ask"), CASES, ids=[f"{family} {ask.name}" for family, ask in CASES]
)
every_family = pytest.mark.parametrize("family", TABLES)
CREDENTIAL = "x-goog-api-key"
AT_ONCE = types.HttpRetryOptions(attempts=RETRIES + 1, initial_delay=0.01, jitter=0)


def perform_openai(family: str, world: World, ask: Ask, tag: str) -> Outcome:
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


def perform_anthropic(world: World, ask: Ask, tag: str) -> Outcome:
    wire = Wire()
    key = ask.secret or world.keys[ask.key]
    base = ask.base[M] if ask.base else ""
    headers = headers_of(ask, key, tag, anthropic.omit)
    with (
        httpx2.Client(transport=wire, timeout=TIMEOUT_S) as http,
        anthropic.Anthropic(
            api_key=key, base_url=world.base_url + base, max_retries=RETRIES, http_client=http
        ) as client,
        pytest.raises(anthropic.APIError) as caught,
    ):
        path = ask.path[M] if ask.path else "/v1/messages"
        if ask.method == "get":
            client.get(path, cast_to=object, options={"headers": headers})
        elif ask.content is not None or ask.path:
            raw = {"Content-Type": JSON, **headers}
            content = b"{}" if ask.content is None else ask.content_for(M)
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


def rewriter(ask: Ask, headers: Mapping[str, Any]) -> Callable[[httpx2.Request], httpx2.Request]:
    """Puts into a request of the SDK what the ask wants."""

    def rewrite(request: httpx2.Request) -> httpx2.Request:
        sent = httpx2.Headers(request.headers)
        if "Authorization" in headers and CREDENTIAL not in headers:
            del sent[CREDENTIAL]
        sent.update({name: value for name, value in headers.items() if value is not None})
        content = request.content if ask.content is None else ask.content_for(G)
        url = request.url
        if ask.path:
            url = url.copy_with(raw_path=ask.path[G].encode())
        method = ask.method.upper()
        if method == "GET":
            content = b""
        del sent["Content-Length"]
        return httpx2.Request(
            method, url, headers=sent, content=content, extensions=request.extensions
        )

    return rewrite


def perform_genai(world: World, ask: Ask, tag: str) -> Outcome:
    key = ask.secret or world.keys[ask.key]
    wire = Wire(rewriter(ask, headers_of(ask, key, tag, None)))
    base = ask.base[G] if ask.base else ""
    options = types.HttpOptions(
        base_url=world.base_url + base,
        timeout=TIMEOUT_S * 1000,
        retry_options=AT_ONCE,
        client_args={"transport": wire, "verify": TLS},
        async_client_args={"verify": TLS},
        extra_body=dict(ask.body) or None,
    )
    asked: Any = {"model": ask.model, "contents": f"{tag} {ask.prompt}"}
    with (
        genai.Client(api_key=key, http_options=options) as client,
        pytest.raises(errors.APIError) as caught,
    ):
        if ask.stream:
            list(client.models.generate_content_stream(**asked))
        else:
            client.models.generate_content(**asked)
    return Outcome(tag, caught.value, wire.answers)


PERFORM = {
    C: partial(perform_openai, C),
    R: partial(perform_openai, R),
    M: perform_anthropic,
    G: perform_genai,
}


@pytest.fixture(scope="module")
def outcomes(world):
    return {family: perform_all(world, family, perform) for family, perform in PERFORM.items()}


@pytest.fixture(scope="module")
def records(world, outcomes):
    return world.records()


@every_case
def test_raises(family, ask, outcomes):
    outcome = outcomes[family][ask.name]
    status, *facts, raised, calls = TABLES[family][ask.condition]
    error = outcome.raised
    assert type(error).__name__ == raised
    assert [answered for answered, _ in outcome.answers] == [status] * calls
    if family == G:
        assert [error.code, error.status] == [status, *facts]
        assert set(error.details) == {"error"}
        assert error.details["error"]["code"] == status
        message = error.message
    elif family == M:
        assert [error.status_code, error.type] == [status, *facts]
        assert set(error.body) == {"type", "error", "request_id"}
        assert error.body["type"] == "error"
        message = error.api_message
    else:
        assert [error.status_code, error.type, error.code] == [status, *facts]
        assert set(error.body) == {"message", "type", "param", "code"}
        message = error.message
    assert ask.says_for(family) in message


@every_case
def test_headers(family, ask, outcomes):
    outcome = outcomes[family][ask.name]
    extra = extra_headers(ask)
    assert outcome.answers
    for _, headers in outcome.answers:
        assert headers["content-type"] == "application/json"
        assert headers["request-id"] == headers["x-request-id"]
        assert {name: headers[name] for name in SEEN_HEADERS if name in headers} == extra
    last = outcome.answers[-1][1]["x-request-id"]
    if family == G:
        hints = outcome.raised.details["error"].get("details", [])
        wait = extra.get("retry-after")
        assert [hint["retryDelay"] for hint in hints] == ([f"{wait}s"] if wait else [])
    else:
        assert outcome.raised.request_id == last
    if family == M:
        assert outcome.raised.body["request_id"] == last


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


def test_fields_are_named_as_messages_writes_them(outcomes):
    messages = {name: outcome.raised.api_message for name, outcome in outcomes[M].items()}
    assert messages["E10 missing"] == "model: field required"
    assert messages["E13 max_tokens"] == "max_tokens: field required"
    assert messages["E12 words are a number"].startswith("messages: expected")


@every_family
def test_a_body_that_does_not_come(world, family):
    """E36."""
    status, headers, body = late_body(world, LATE_PATHS[family])
    assert (status, headers["connection"]) == (408, "close")
    error = body["error"]
    if family == G:
        assert error["status"] == "DEADLINE_EXCEEDED"
    elif family == M:
        assert (body["type"], error["type"]) == ("error", "timeout_error")
        assert body["request_id"] == headers["request-id"]
    else:
        assert (error["type"], error["code"]) == ("invalid_request_error", "request_timeout")
    record = world.gateway.record(headers["x-request-id"])
    assert (record["outcome"], record["error_code"]) == ("refused", "request_timeout")
    assert record["status"] == 408


@every_family
def test_no_ask_is_missing(family):
    assert {ask.condition for ask in asks_of(family)} == set(TABLES[family])

"""Each way to fail, seen through the google-genai SDK: exception, number of calls, headers, record.

The SDK repeats nothing unless it is told to, as it is here. What it cannot be made to send (other
bytes, paths, credentials) is put into the request on its way.
"""

from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import pytest
from google import genai
from google.genai import errors, types

from tests.sdk.conditions import (
    CALL,
    GENERATE,
    RETRIES,
    SEEN_HEADERS,
    Ask,
    G,
    Outcome,
    asks_of,
    check_trace,
    extra_headers,
    headers_of,
    late_body,
    perform_all,
)
from tests.sdk.world import TIMEOUT_S, TLS, Wire, World

ASKS = asks_of(G)
CREDENTIAL = "x-goog-api-key"
AT_ONCE = types.HttpRetryOptions(attempts=RETRIES + 1, initial_delay=0.01, jitter=0)


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


def perform(world: World, ask: Ask, tag: str) -> Outcome:
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


@pytest.fixture(scope="module")
def outcomes(world):
    return perform_all(world, G, perform)


@pytest.fixture(scope="module")
def records(world, outcomes):
    return world.records()


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.name)
def test_raises(ask, outcomes):
    outcome = outcomes[ask.name]
    status, name, raised, calls = GENERATE[ask.condition]
    error = outcome.raised
    assert type(error).__name__ == raised
    assert (error.code, error.status) == (status, name)
    assert [answered for answered, _ in outcome.answers] == [status] * calls
    assert ask.says_for(G) in error.message
    assert set(error.details) == {"error"}
    assert error.details["error"]["code"] == status


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.name)
def test_headers(ask, outcomes):
    outcome = outcomes[ask.name]
    wait = extra_headers(ask).get("retry-after")
    assert outcome.answers
    for _, headers in outcome.answers:
        assert headers["content-type"] == "application/json"
        assert headers["request-id"] == headers["x-request-id"]
        seen = {name: headers[name] for name in SEEN_HEADERS if name in headers}
        assert seen == extra_headers(ask)
    hints = outcome.raised.details["error"].get("details", [])
    assert [hint["retryDelay"] for hint in hints] == ([f"{wait}s"] if wait else [])


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.name)
def test_leaves_its_trace(ask, world, outcomes, records):
    check_trace(world, ask, outcomes[ask.name], records)


def test_a_body_that_does_not_come(world):
    """E36."""
    status, headers, told = late_body(world, CALL)
    assert (status, headers["connection"]) == (408, "close")
    assert told["error"]["status"] == "DEADLINE_EXCEEDED"
    record = world.gateway.record(headers["x-request-id"])
    assert (record["outcome"], record["error_code"]) == ("refused", "request_timeout")


def test_no_ask_is_missing():
    assert {ask.condition for ask in ASKS} == set(GENERATE)

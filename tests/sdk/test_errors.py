"""Each way to fail, through the official SDKs: exception, number of calls, headers, record.

The google-genai SDK retries only if configured so, as it is here. What an SDK cannot be made to
send (other bytes, paths, credentials) is put into the request on its way.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import httpx2
import pytest
from google import genai
from google.genai import errors, types

from tests.sdk import conditions
from tests.sdk.sdks import SDKS, Sdk
from tests.sdk.world import FAMILIES, TIMEOUT_S, TLS, Wire, World
from tests.support.dialects import REFUSALS, SPECIAL_HEADERS

CASES = [(family, ask) for family in FAMILIES for ask in conditions.asks_of(family)]
CREDENTIAL = "x-goog-api-key"
AT_ONCE = types.HttpRetryOptions(attempts=conditions.RETRIES + 1, initial_delay=0.01, jitter=0)


def perform(sdk: Sdk, world: World, ask: conditions.Ask, tag: str) -> conditions.Outcome:
    """Make a call with an SDK of openai or anthropic; return the outcome."""
    key = ask.secret or world.keys[ask.key]
    headers = conditions.headers_of(ask, key, tag, sdk.omit)
    base = ask.base[sdk.family] if ask.base else None
    with sdk.client(world, key, base) as (client, wire), pytest.raises(sdk.error) as caught:
        path = ask.path[sdk.family] if ask.path else sdk.path.removeprefix(sdk.base)
        if ask.method == "get":
            client.get(path, cast_to=object, options={"headers": headers})
        elif ask.content is not None or ask.path:
            raw = {"Content-Type": conditions.JSON, **headers}
            content = b"{}" if ask.content is None else ask.content_for(sdk.family)
            client.post(path, content=content, cast_to=object, options={"headers": raw})
        else:
            asked: Any = {"extra_headers": headers, "extra_body": dict(ask.body)}
            prompt = f"{tag} {ask.prompt}"
            sdk.create(client, ask.model, prompt, stream=ask.stream, **asked)
    return conditions.Outcome(tag, caught.value, wire.answers)


def rewriter(
    ask: conditions.Ask, headers: Mapping[str, Any]
) -> Callable[[httpx2.Request], httpx2.Request]:
    """Return a function that changes the SDK's request as the call requires."""

    def rewrite(request: httpx2.Request) -> httpx2.Request:
        sent = httpx2.Headers(request.headers)
        if "Authorization" in headers and CREDENTIAL not in headers:
            del sent[CREDENTIAL]
        sent.update({name: value for name, value in headers.items() if value is not None})
        content = request.content if ask.content is None else ask.content_for(conditions.G)
        url = request.url
        if ask.path:
            url = url.copy_with(raw_path=ask.path[conditions.G].encode())
        method = ask.method.upper()
        if method == "GET":
            content = b""
        del sent["Content-Length"]
        return httpx2.Request(
            method, url, headers=sent, content=content, extensions=request.extensions
        )

    return rewrite


def perform_genai(world: World, ask: conditions.Ask, tag: str) -> conditions.Outcome:
    key = ask.secret or world.keys[ask.key]
    wire = Wire(rewriter(ask, conditions.headers_of(ask, key, tag, None)))
    base = ask.base[conditions.G] if ask.base else ""
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
    return conditions.Outcome(tag, caught.value, wire.answers)


PERFORM: dict[str, conditions.Perform] = {
    **{sdk.family: partial(perform, sdk) for sdk in SDKS if sdk.family != conditions.G},
    conditions.G: perform_genai,
}


@pytest.fixture(scope="module")
def outcomes(world):
    return {
        family: conditions.perform_all(world, family, perform)
        for family, perform in PERFORM.items()
    }


@pytest.fixture(scope="module")
def records(world, outcomes):
    for family, ask in CASES:
        if ask.condition not in conditions.UNRECORDED:
            for _, headers in outcomes[family][ask.name].answers:
                world.gateway.record(headers["x-request-id"])  # waits for it
    return world.records()


@pytest.mark.parametrize(
    ("family", "ask"), CASES, ids=[f"{family} {ask.name}" for family, ask in CASES]
)
def test_fails(family, ask, world, outcomes, records):
    outcome = outcomes[family][ask.name]
    status, kind, raised, calls = conditions.expected_of(family, ask.condition)
    error = outcome.raised
    assert type(error).__name__ == raised
    assert [answered for answered, _ in outcome.answers] == [status] * calls
    if family == conditions.G:
        assert [error.code, error.status] == [status, kind]
        assert set(error.details) == {"error"}
        assert error.details["error"]["code"] == status
        message = error.message
    elif family == conditions.M:
        assert [error.status_code, error.type] == [status, kind]
        assert set(error.body) == {"type", "error", "request_id"}
        assert error.body["type"] == "error"
        message = error.api_message
    else:
        code = REFUSALS[ask.condition].code_of(family)
        assert [error.status_code, error.type, error.code] == [status, kind, code]
        assert set(error.body) == {"message", "type", "param", "code"}
        message = error.message
    assert message
    check_headers(family, ask, outcome)
    conditions.check_trace(world, ask, outcome, records)


def check_headers(family, ask, outcome):
    extra = conditions.extra_headers(ask)
    assert outcome.answers
    for _, headers in outcome.answers:
        assert headers["content-type"] == "application/json"
        assert headers["request-id"] == headers["x-request-id"]
        assert {name: headers[name] for name in SPECIAL_HEADERS if name in headers} == extra
    last = outcome.answers[-1][1]["x-request-id"]
    if family == conditions.G:
        hints = outcome.raised.details["error"].get("details", [])
        wait = extra.get("retry-after")
        assert [hint["retryDelay"] for hint in hints] == ([f"{wait}s"] if wait else [])
    else:
        assert outcome.raised.request_id == last
    if family == conditions.M:
        assert outcome.raised.body["request_id"] == last


@pytest.mark.parametrize("family", FAMILIES)
def test_no_ask_is_missing(family):
    assert {ask.condition for ask in conditions.asks_of(family)} == conditions.conditions_of(family)

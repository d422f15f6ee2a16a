"""Requests to all routes of the relay with odd methods, ids, queries, headers and bodies, the same
in every run: none is an internal error. Bodies of calls alone: test_hostile.py."""

import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.entries.routes import ROUTES
from tests.gateway.test_hostile import HOSTILE_BYTES, HOSTILE_VALUES, hostile_bytes
from tests.support.client import Closed, Connection
from tests.support.dialects import ALL, ask, credentials
from tests.support.documents import channel, document

MODEL = "fuzz-model"
SEED = 20261127
REQUESTS = 3000
AT_ONCE = 4
METHODS = ["GET", "GET", "POST", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH", "get", "X-1"]
IDS = ["resp_1", MODEL, "none", "%ED%A0%80", "%FF", "%00", "..", "%2e%2e", "a%0D%0Ab", "x" * 3000,
       "a:b", "%25", "*", "é", "\x7f", "{id}", "a%2Fb", ":generateContent"]  # fmt: skip
NAMED = ["/v1/responses/{}", "/v1/responses/{}/input_items", "/v1/responses/{}/cancel",
         "/v1/models/{}", "/v1beta/models/{}", "/v1beta/models/{}:generateContent",
         "/v1beta/models/{}:streamGenerateContent", "/v1beta/models/{}:countTokens", "/{}",
         "/v1/messages/{}", "/v1/{}", "/v1/chat/completions/{}"]  # fmt: skip
QUERIES = ["", "", "stream=true", "stream=%ED%A0%80", "alt=sse", "alt=sse&alt=json", "limit=-1",
           "limit=1e9&after=%FF", "pageSize=%00&pageToken=%ED%A0%80", "include[]=x&include[]=%FF",
           "key=%ED%A0%80", "starting_after=" + "9" * 400, "&&==&%"]  # fmt: skip
HEADERS = ["content-type", "accept", "user-agent", "x-request-id", "traceparent", "x-api-key",
           "anthropic-version", "anthropic-beta", "openai-organization", "x-forwarded-for",
           "accept-encoding", "x-stainless-retry-count", "x-goog-api-key"]  # fmt: skip
ODD = ["", "\xed\xa0\x80", "\xff\xfe", "x" * 3000, "a,b;c=d", "00-" + "0" * 32 + "-x-01", "%00",
       "application/json; charset=utf-16", "multipart/form-data", "-1", "é"]  # fmt: skip


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    models = {MODEL: "script.ms=0"}
    channels = [channel(f"of-{family}", family, vendor.url, models) for family in ALL]
    return launch(document([MODEL], channels), {"log.level": "warning"}, follow=False)


def body_of(family, rng):
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice([b"", *HOSTILE_BYTES])
    body = ask(family, MODEL, "x", kind == 1)
    for _ in range(rng.randrange(3)):
        body[rng.choice([*body, "input", "contents", "model", "tools"])] = rng.choice(
            HOSTILE_VALUES
        )
    data = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    return hostile_bytes(data, rng, HOSTILE_BYTES) if kind == 2 else data


def request_of(number):
    rng = random.Random(f"{SEED} {number}")
    family = rng.choice(ALL)
    path = rng.choice([*ROUTES, *NAMED]).format(rng.choice(IDS))
    path += f"?{query}" if (query := rng.choice(QUERIES)) else ""
    headers = dict(credentials(family))
    for name in rng.sample(HEADERS, rng.randrange(3)):
        headers[name] = rng.choice(ODD)
    method = rng.choice(METHODS)
    return method, path, headers, None if method == "HEAD" else body_of(family, rng)


def faults_of(port, numbers):
    found = []
    for number in numbers:
        method, path, headers, body = request_of(number)
        connection = Connection(port)
        try:
            connection.request(method, path, headers, body)
            status = connection.read_head().status
        except (Closed, ConnectionError):
            continue  # what is no HTTP is answered on a connection that may end with it
        finally:
            connection.close()
        if status == 500:
            found.append((number, method, path[:200], headers, (body or b"")[:300]))
    return found


def test_nothing_is_an_internal_error(gateway):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        parts = [range(start, REQUESTS, AT_ONCE) for start in range(AT_ONCE)]
        found = [
            one
            for part in pool.map(lambda part: faults_of(gateway.port, part), parts)
            for one in part
        ]
    assert found == [], (len(found), found[:5])
    log = gateway.log()
    assert "Traceback" not in log and "failed inside the gateway" not in log

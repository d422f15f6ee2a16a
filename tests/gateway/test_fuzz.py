"""Thousands of malformed requests, the same in every run: none causes an internal error, and calls
are refused in their family's shape."""

import copy
import json
import math
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.entries.routes import ROUTES
from tests.support import dialects
from tests.support.client import Closed, Connection
from tests.support.documents import channel, document
from tests.support.hostile import hostile_bytes

MODEL = "fuzz-model"
SEED = 20261127
REQUESTS = 800  # of each kind
AT_ONCE = 4
HOSTILE_VALUES = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, math.inf,
    -math.inf, math.nan, "", " ", "\x00", "\ud800", "\udfff\ud800", "a" * 70_000, "../../etc",
    "𝒳" * 100, "\u202e", "null", "[DONE]", "data: x\n\n", "\r\n\r\n", "1", "true", [], {}, [[]],
    [None], [{}], {"": ""}, {"type": "x"}, [1, "a", None], {"__proto__": {}}, "sk-" + "x" * 40,
    [[[[[[[[]]]]]]]], {"a": {"a": {"a": {}}}}, [0] * 500, {str(n): n for n in range(300)},
]  # fmt: skip
HOSTILE_BYTES = [
    b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x00", b"\\u0000", b"\\ud800", b"\\",
    b"[" * 3000, b'{"a":' * 1500, b"]", b"}", b'"', b",", b":", b",,", b"NaN", b"1e99999", b"-",
    b"00", b"0x1", b"1" * 5000, b"//x\n", b"/**/", b"'", b"\x1f", b"\xe2\x80\xa8", b'"model":1,',
    b'"stream":true,', b'"stream":"x",', b'"contents":[],', b'"max_tokens":-1,', b"tru", b"\r",
]  # fmt: skip
TOOL = {"name": "pick", "description": "d", "parameters": {"type": "object", "properties": {}}}
MORE = {
    dialects.CHAT: {"tools": [{"type": "function", "function": TOOL}], "n": 1, "stop": ["x"],
        "seed": 1,
           "stream_options": {"include_usage": True}, "temperature": 1, "user": "u"},
    dialects.RESPONSES: {"instructions": "i", "tools": [{"type": "function", **TOOL,
        "strict": False}],
                "previous_response_id": None, "conversation": None, "metadata": {"a": "b"},
                "store": False, "reasoning": {"effort": "low"}},
    dialects.MESSAGES: {"system": [{"type": "text", "text": "s"}], "temperature": 1, "metadata": {},
               "tools": [{"name": "pick", "input_schema": {"type": "object"}}],
               "thinking": {"type": "disabled"}},
    dialects.GENERATE: {"systemInstruction": {"parts": [{"text": "s"}]}, "model": MODEL,
               "tools": [{"functionDeclarations": [TOOL]}], "safetySettings": [],
               "cachedContent": None, "generationConfig": {"maxOutputTokens": 9,
                                                           "candidateCount": 1}},
}  # fmt: skip
PLACES = {
    dialects.CHAT: ["/v1/chat/completions"],
    dialects.RESPONSES: ["/v1/responses", "/v1/responses", "/v1/responses/input_tokens",
                "/v1/responses/compact"],
    dialects.MESSAGES: ["/v1/messages", "/v1/messages", "/v1/messages/count_tokens"],
    dialects.GENERATE: [f"/{version}/models/{MODEL}:{verb}" for version in ("v1",
        "v1beta") for verb in (
        "generateContent", "streamGenerateContent?alt=sse", "streamGenerateContent",
        "countTokens")],
}  # fmt: skip


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
    channels = [channel(f"of-{family}", family, vendor.url, models) for family in dialects.ALL]
    return launch(document([MODEL], channels), follow=False)


def places_in(value, found):
    """Collect every container inside a JSON value, itself included."""
    if isinstance(value, (dict, list)):
        found.append(value)
        for inner in value.values() if isinstance(value, dict) else value:
            places_in(inner, found)
    return found


def warp(body, rng):
    """Change one thing in a decoded request."""
    place = rng.choice(places_in(body, []))
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    value = copy.deepcopy(rng.choice(HOSTILE_VALUES))
    if not keys:
        if isinstance(place, dict):
            place["x"] = value
        else:
            place.append(value)
        return
    key = rng.choice(keys)
    kind = rng.randrange(6)
    if kind == 0:
        del place[key]
    elif kind == 1 and isinstance(place, dict):
        place[rng.choice([key.upper(), key + " ", "\x00" + key, ""])] = place.pop(key)
    elif kind == 2:
        place[key] = [place[key]]
    elif kind == 3:
        place[key] = {"x": place[key]}
    else:
        place[key] = value


def hostile_request(family, rng):
    """Return the bytes of a request, most of which are malformed."""
    stream = rng.random() < 0.4
    body = json.loads(json.dumps({**dialects.ask(family, MODEL, "x", stream), **MORE[family]}))
    for name in rng.sample(sorted(MORE[family]), rng.randrange(len(MORE[family]))):
        body.pop(name, None)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 4])):
        warp(body, rng)
    data = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.5:
        data = hostile_bytes(data, rng, HOSTILE_BYTES)
    return data


def call_of(number):
    """Return (family, method, path, headers, body) of a call with a body that is usually
    malformed."""
    rng = random.Random(f"{SEED} call {number}")
    family = dialects.ALL[number % len(dialects.ALL)]
    path, body = rng.choice(PLACES[family]), hostile_request(family, rng)
    return family, "POST", path, dialects.credentials(family), body


def wild_request_of(number):
    """Return the same of a request that may be malformed anywhere."""
    rng = random.Random(f"{SEED} {number}")
    family = rng.choice(dialects.ALL)
    path = rng.choice([*ROUTES, *NAMED]).format(rng.choice(IDS))
    path += f"?{query}" if (query := rng.choice(QUERIES)) else ""
    headers = dict(dialects.credentials(family))
    for name in rng.sample(HEADERS, rng.randrange(3)):
        headers[name] = rng.choice(ODD)
    method = rng.choice(METHODS)
    body = rng.choice([b"", *HOSTILE_BYTES]) if rng.random() < 0.25 else None
    if method != "HEAD" and body is None:
        body = hostile_request(family, rng)
    return family, method, path, headers, None if method == "HEAD" else body


def check_call(family, answer):
    """Check that the answer to a hostile call is whole, has its family's shape, and is not an
    internal error."""
    dialects.check_ids(answer)
    assert answer.whole
    if answer.status == 200:
        kind = answer.headers["content-type"].split(";")[0]
        assert kind in ("application/json", "text/event-stream")
    else:
        assert 400 <= answer.status < 500
        dialects.error_of(family, answer.body, answer.call_id)


def send_all(port, make, numbers):
    """Send the requests of these numbers; return (statuses, problems)."""
    statuses, wrong = [], []
    for number in numbers:
        family, method, path, headers, body = make(number)
        try:
            with Connection(port) as connection:
                connection.request(method, path, headers, body)
                if make is call_of:
                    answer = connection.read(method)
                    check_call(family, answer)
                else:
                    answer = connection.read_head()
                    assert answer.status != 500
            statuses.append(answer.status)
        except (Closed, ConnectionError) as error:
            # Bytes that are not HTTP are answered on a connection that may then end.
            if make is call_of:
                wrong.append((number, path, repr(error)))
        except (ValueError, KeyError, AssertionError) as error:
            wrong.append((number, method, path[:200], headers, f"{error!r:.300}", body[:300]))
    return statuses, wrong


@pytest.mark.parametrize("make", [call_of, wild_request_of])
def test_nothing_is_an_internal_error(gateway, make):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        parts = [range(start, REQUESTS, AT_ONCE) for start in range(AT_ONCE)]
        done = list(pool.map(lambda part: send_all(gateway.port, make, part), parts))
    wrong = [fault for _, faults in done for fault in faults]
    assert wrong == [], (len(wrong), wrong[:5])
    statuses = [status for seen, _ in done for status in seen]
    # Some calls passed and some were refused.
    assert 0.02 * REQUESTS < statuses.count(200) < 0.7 * REQUESTS
    log = gateway.log()
    assert "Traceback" not in log and "failed inside the gateway" not in log

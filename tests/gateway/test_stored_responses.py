"""Requests for an upstream's stored responses: they go to the one channel that can know them.

If several can, the gateway remembers which one made it: test_stored_owners.
"""

import json
from decimal import Decimal

import pytest

from tests.support.client import Connection, exchange
from tests.support.dialects import (
    CHAT,
    RESPONSES,
    ask,
    check_ids,
    check_refusal,
    check_stream_failure,
    check_whole_stream,
    credentials,
)
from tests.support.documents import CREDIT, PRICE, UPSTREAM_KEY, channel, document
from tests.support.upstream import RawUpstream

PATH = "/v1/responses"
COUNT, COMPACT = PATH + "/input_tokens", PATH + "/compact"
MODEL, MAPPED = "stored-model", "stored-mapped"
# The key of each group; the group's name says how many native responses channels it has.
SECRETS = {
    "one": "sk-test-of-one-channel-0123456789",
    "two": "sk-test-of-two-channels-123456789",
    "none": "sk-test-of-no-channel-0123456789",
    "raw": "sk-test-of-raw-channel-0123456789",
}
GROUP = "one"
UNKNOWN = "resp_0000000000000000000000000000"
STORED_AT = "/v1/responses/{id}"
STORED_ENDPOINTS = [
    # method, the path after the id, endpoint of the record
    ("GET", "", STORED_AT),
    ("DELETE", "", STORED_AT),
    ("POST", "/cancel", "/v1/responses/{id}/cancel"),
    ("GET", "/input_items", "/v1/responses/{id}/input_items"),
]


@pytest.fixture(scope="module")
def raw():
    with RawUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(launch, vendor, raw):
    models = {MODEL: "demo-small", MAPPED: "demo-large"}
    channels = [
        channel("native", RESPONSES, vendor.url, models, groups=["one"]),
        channel("chat-beside", CHAT, vendor.url, models, groups=["one", "two", "none"]),
        channel("native-a", RESPONSES, vendor.url, models, groups=["two"]),
        channel("native-b", RESPONSES, vendor.url, models, groups=["two"]),
        channel("off", RESPONSES, vendor.url, models, groups=["one", "none"], enabled=False),
        channel("raw", RESPONSES, raw.url, models, groups=["raw"]),
    ]
    content = document([*models], channels)
    content["group"] = [{"name": name, "translate": name != "none"} for name in SECRETS]
    content["user"] = [{"name": "owner", "balance": CREDIT}]
    content["key"] = [
        {"user": "owner", "name": name, "group": name, "secret": secret}
        for name, secret in SECRETS.items()
    ]
    settings = {"upstream.first_byte_timeout_s": 5, "upstream.idle_timeout_s": 5}
    # For ids not made through the gateway; test_stored_owners tests the default, which refuses
    # them.
    return launch(content, {**settings, "routing.unknown_responses": "pass"})


def call(gateway, method, path, body=None, group=GROUP, **headers):
    sent = {**credentials(RESPONSES, SECRETS[group]), **headers}
    return exchange(gateway.port, method, path, sent, body)


def check_free_record(gateway, answer, endpoint, outcome="ok", status=200):
    record = gateway.record(answer.call_id)
    assert (record["endpoint"], record["outcome"]) == (endpoint, outcome)
    assert (record["status"], record["family"], record["model"]) == (status, RESPONSES, None)
    assert (record["cost"], record["charges"], record["billed_to"]) == ("0", [], None)
    assert (record["usage_source"], record["prices"]) == ("none", None)
    return record


# ---- by id ---------------------------------------------------------------------------------------


def test_head_of_a_stored_response_is_its_head(gateway, vendor):
    path = f"{PATH}/{stored_by(vendor)}"
    vendor.reset()
    answers = [call(gateway, method, path + "?stream=true") for method in ("HEAD", "GET")]
    assert [bool(answer.body) for answer in answers] == [False, True]
    assert [entry["method"] for entry in vendor.log()] == ["GET", "GET"]
    check_free_record(gateway, answers[0], STORED_AT)


@pytest.mark.parametrize(("method", "rest", "endpoint"), STORED_ENDPOINTS)
def test_stored_things_pass_with_the_query_byte_for_byte(gateway, vendor, method, rest, endpoint):
    # Only a background response can be cancelled.
    name = stored_by(vendor, background=rest == "/cancel")
    fields = "limit=1&order=asc" if rest == "/input_items" else "include=message.x&beta=true"
    vendor.reset()
    path = f"{PATH}/{name}{rest}?{fields}&x=%2F..%2F"
    answer = call(gateway, method, path)
    (entry,) = vendor.log()
    assert (entry["method"], entry["path"], entry["body"]) == (method, path, "")
    assert entry["headers"]["authorization"] == f"Bearer {UPSTREAM_KEY}"
    check_ids(answer)
    if method == "DELETE":
        assert answer.json == {"id": name, "object": "response", "deleted": True}
    else:
        direct = exchange(vendor.port, method, path, credentials(RESPONSES, UPSTREAM_KEY))
        assert answer.status == 200 and answer.body == direct.body
    record = check_free_record(gateway, answer, endpoint)
    assert [attempt["channel"] for attempt in record["attempts"]] == ["native"]
    assert record["channel"] == "native" and record["stream"] is False


def stored_by(vendor, background=False):
    """Return the id of a response that was not made through the gateway."""
    body = ask(RESPONSES, "demo-small", "Keep this.", store=True, background=background)
    answer = exchange(vendor.port, "POST", PATH, credentials(RESPONSES, UPSTREAM_KEY), body)
    return answer.json["id"]


ODD_IDS = [
    "..", ".", "...", "%2e%2e", "%2E%2E", ".%2e", "..;", "..%2f..%2fmodels", "%2e%2e%2fmodels",
    "resp_1%2F..%2F..%2Fmodels", "resp_1%3Fx", "resp_1%23", "resp_1;x=1", "resp+1",
    "resp_1%20", "resp_1%00", "resp_1%0d%0aX-A:%20b", "resp_%C3%A9", "resp_1*", "resp_1@evil.test",
    "resp_1:80", "\\..\\", "resp_1\\", "~", "$x", "{id}", "resp_1,resp_2", "%", "%zz", "'",
    "a" * 300, "%72esp_1", "resp_1|x", "resp_1^", "[x]", "(x)", "!", "=", "&", "resp_1%252F..",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD_IDS)
def test_odd_ids_reach_no_upstream(gateway, vendor, name):
    vendor.reset()
    answer = call(gateway, "GET", f"{PATH}/{name}")
    message = check_refusal(answer, RESPONSES, "E35")
    assert len(message) < 200
    record = check_free_record(gateway, answer, f"{PATH}/{{id}}", "refused", 404)
    assert record["attempts"] == [] and vendor.log() == []


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/resp_1", "GET, HEAD, DELETE"),
        ("GET", "/resp_1/cancel", "POST"),
        ("DELETE", "/resp_1/input_items", "GET, HEAD"),
        ("GET", "/input_tokens", "POST"),
    ],
)
def test_wrong_methods(gateway, vendor, method, path, allowed):
    vendor.reset()
    answer = call(gateway, method, PATH + path)
    check_refusal(answer, RESPONSES, "E33", allow=allowed)
    assert vendor.log() == [] and answer.call_id not in gateway.tail


# ---- answers of upstreams ------------------------------------------------------------------------


def asked(gateway, raw, method, path, reply):
    """Return the gateway's answer to this reply of the raw upstream, and the request that reached
    it."""
    with Connection(gateway.port) as connection:
        connection.request(method, path, credentials(RESPONSES, SECRETS["raw"]))
        peer = raw.accept()
        peer.send(reply)
        peer.close()
        return connection.read(method), peer.request


def reply_of(status, body, kind=b"application/json"):
    head = b"HTTP/1.1 %d X\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (status, kind, len(body)) + body


def test_any_object_passes_byte_for_byte(gateway, raw):
    body = (
        b' {"id":"resp_1","status":"failed", "error":{"code":"x"},"model":"demo-large","n":1e999}\n'
    )
    answer, _ = asked(gateway, raw, "GET", f"{PATH}/resp_1?a=b", reply_of(200, body))
    assert answer.status == 200 and answer.body == body
    check_free_record(gateway, answer, STORED_AT)


def test_a_client_that_sends_a_body_with_its_get(gateway, raw):
    with Connection(gateway.port) as connection:
        headers = credentials(RESPONSES, SECRETS["raw"])
        connection.request("POST", f"{PATH}/resp_1/cancel", headers, b'{"a":1}')
        peer = raw.accept()
        assert peer.request.endswith(b"\r\n\r\n") and b"content-length: 0" in peer.request.lower()
        peer.send(reply_of(200, b'{"id":"resp_1"}'))
        peer.close()
        assert connection.read().json == {"id": "resp_1"}


def test_a_stored_stream_is_relayed_and_free(gateway, raw, vendor):
    events = exchange(
        vendor.port, "POST", PATH, credentials(RESPONSES), ask(RESPONSES, "demo-small", stream=True)
    ).body
    path = f"{PATH}/resp_1?stream=true&starting_after=3"
    answer, request = asked(gateway, raw, "GET", path, reply_of(200, events, b"text/event-stream"))
    assert request.startswith(b"GET " + path.encode() + b" HTTP/1.1")
    check_whole_stream(answer)
    assert answer.body == events
    record = gateway.record(answer.call_id)
    assert (record["cost"], record["outcome"], record["stream"]) == ("0", "ok", True)
    cut = events[: len(events) // 2]
    answer, _ = asked(gateway, raw, "GET", path, reply_of(200, cut, b"text/event-stream"))
    check_stream_failure(answer, RESPONSES, "E26")
    record = gateway.record(answer.call_id)
    assert (record["cost"], record["outcome"]) == ("0", "upstream_truncated")


# ---- continuations of stored responses -----------------------------------------------------------

CONTINUED = [
    ("previous_response_id", {"previous_response_id": UNKNOWN}),
    ("conversation", {"conversation": "conv_0000000000000000"}),
    ("conversation.id", {"conversation": {"id": "conv_0000000000000000"}}),
]


@pytest.mark.parametrize("path", [PATH, COUNT, COMPACT])
@pytest.mark.parametrize(("param", "more"), CONTINUED)
def test_ids_are_sent_on_to_the_one_channel(gateway, vendor, path, param, more):
    vendor.reset()
    data = json.dumps({"model": MAPPED, "input": "x", **more}, indent=1).encode()
    answer = call(gateway, "POST", path, data)
    (entry,) = vendor.log()
    assert entry["path"] == path
    assert entry["body"].encode() == data.replace(MAPPED.encode(), b"demo-large")
    assert answer.status in (200, 400, 404)
    record = gateway.record(answer.call_id)
    assert [attempt["channel"] for attempt in record["attempts"]] == ["native"]
    # If two channels could have made them, they count as unknown.
    answer = call(gateway, "POST", path, {"model": MODEL, "input": "x", **more}, group="two")
    check_refusal(answer, RESPONSES, "E35")
    assert answer.json["error"]["param"] == param
    record = gateway.record(answer.call_id)
    assert (record["outcome"], record["cost"], record["attempts"]) == ("refused", "0", [])
    assert len(vendor.log()) == 1


# ---- counts and compaction -----------------------------------------------------------------------


def test_a_compaction_is_billed(gateway):
    answer = call(gateway, "POST", COMPACT, {"model": MAPPED, "input": "word " * 200})
    assert answer.status == 200 and answer.json["object"] == "response.compaction"
    usage = answer.json["usage"]
    record = gateway.record(answer.call_id)
    assert (record["endpoint"], record["model"], record["outcome"]) == (COMPACT, MAPPED, "ok")
    price_in, price_out = Decimal(PRICE["input"]), Decimal(PRICE["output"])
    cost = (usage["input_tokens"] * price_in + usage["output_tokens"] * price_out) / 10**6
    assert usage["input_tokens"] > 0 and Decimal(record["cost"]) == cost > 0

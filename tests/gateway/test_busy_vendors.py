"""Answers and requests that need much work for each byte: they end, and other calls are served
meanwhile."""

import gzip
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.adapters.json.odd_bodies import encoded, filled, large_requests
from tests.support import dialects
from tests.support.client import exchange
from tests.support.documents import channel, document
from tests.support.upstream import RawUpstream

STREAM_BYTES, ANSWER_BYTES, REQUEST_BYTES = 4 << 20, 10_000_000, 33_000_000
PATIENCE_S = 120
# Half a second is promised; the machine's other load comes on top. Before the fix it was 2.7 to 38
# s, and some hours for a body of markers. tests/handlers/relay/test_running.py checks how long the
# loop is blocked.
DELAY_MAX_S = 2.0
PAUSE_S = 0.01  # between the other calls

FIRST = {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}}]}
DATA = b"data: " + json.dumps(FIRST).encode() + b"\n\n"
END = b"data: [DONE]\n\n"
PARTS = 400_000


def of_parts(*pieces):
    parts = [{"text": "a"}, *pieces] * (PARTS // 2)
    return {
        "candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1},
    }


PIECES = {
    # name: (repeated text, its size in bytes, terminator)
    "line-feeds": (b"\n", STREAM_BYTES, b""),
    "comments": (b":\n\n", STREAM_BYTES, b""),
    "tiny-events": (b"a\n\n", STREAM_BYTES // 4, b""),
    "tiny-data": (b'data: {"choices":[]}\n\n', STREAM_BYTES // 4, b""),
    "lines": (b"a\n", STREAM_BYTES, b"\n"),
    "many-lines": (b"a\n" * 20_000 + b"\n", STREAM_BYTES, b""),
    "mixed-ends": (b"a\r\n\nb\n\r\n", STREAM_BYTES // 4, b""),
}


def stream_of(name):
    piece, size, end = PIECES[name]
    return DATA + piece * (size // len(piece)) + end + END


def events_of_parts():
    parts = b",".join([b'{"text":"a"}'] * 300_000)
    return b'data: {"candidates":[{"content":{"parts":[%b]}}]}\n\n' % parts


def answer(body, content_type="text/event-stream", *, packed=False):
    more = ["Content-Encoding: gzip"] if packed else []
    body = gzip.compress(body) if packed else body
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *more, "Connection: close", "", ""]).encode() + body


def whole(said, *, packed=False):
    return answer(json.dumps(said).encode(), "application/json", packed=packed)


# Answers with many empty values, for each family: (prefix, suffix, name of the usage, usage).
ODD_ANSWERS = {
    dialects.CHAT: (b'{"id":"c1","model":"up","choices":[', b"usage",
           b'"prompt_tokens":1,"completion_tokens":2'),
    dialects.RESPONSES: (b'{"id":"r1","model":"up","status":"completed","output":[', b"usage",
                b'"input_tokens":1,"output_tokens":2'),
    dialects.MESSAGES: (b'{"id":"m1","type":"message","model":"up","content":[', b"usage",
               b'"input_tokens":1,"output_tokens":2'),
    dialects.GENERATE: (b'{"responseId":"g1","modelVersion":"up","candidates":[', b"usageMetadata",
               b'"promptTokenCount":1,"candidatesTokenCount":2'),
}  # fmt: skip


def odd_answer(family):
    begin, name, usage = ODD_ANSWERS[family]
    piece = b"{}," if family in (dialects.CHAT, dialects.MESSAGES) else b'"",'
    return filled(piece, ANSWER_BYTES, begin, b'{}],"%b":{%b}}' % (name, usage))


ODD = {f"odd-{family}".replace("_", "-"): family for family in dialects.ALL}
# name -> function that makes the vendor's answer, its family, the client's, whether the call
# streams
CASES = {
    **{f"packed-{name}": (lambda name=name: answer(stream_of(name), packed=True), dialects.CHAT,
        dialects.CHAT, True)
       for name in PIECES},
    **{f"bare-{name}": (lambda name=name: answer(stream_of(name)), dialects.CHAT, dialects.CHAT,
        True)
       for name in PIECES},
    "translated-tiny-data": (lambda: answer(stream_of("tiny-data"), packed=True), dialects.CHAT,
        dialects.MESSAGES,
                             True),
    "translated-lines": (lambda: answer(stream_of("many-lines"), packed=True), dialects.CHAT,
        dialects.MESSAGES,
                         True),
    "whole-parts": (lambda: whole(of_parts({"text": ""})), dialects.GENERATE, dialects.CHAT, False),
    "whole-thoughts": (lambda: whole(of_parts({"text": "b", "thought": True}), packed=True),
                       dialects.GENERATE, dialects.MESSAGES, False),
    "stream-of-parts": (lambda: answer(events_of_parts(), packed=True), dialects.GENERATE,
        dialects.CHAT, True),
    **{name: (lambda family=family: answer(odd_answer(family), "application/json"),
              family, family, False)
       for name, family in ODD.items()},
}  # fmt: skip
SHORT = {"packed-tiny-data", "translated-tiny-data", "whole-parts", "odd-messages"}


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    vendors = {name: RawUpstream(lambda _, make=case[0]: make()) for name, case in CASES.items()}
    channels = [
        channel(name, CASES[name][1], upstream.url, {name: "up"})
        for name, upstream in vendors.items()
    ]
    channels += [channel(f"good-{f}", f, vendor.url, {"good": "demo-small"}) for f in dialects.ALL]
    yield launch(document([*CASES, "good"], channels))
    for upstream in vendors.values():
        upstream.close()


def call(gateway, family, model, body=None, *, stream=False):
    body = body or dialects.ask(family, model, "Hello", stream=stream)
    headers = {"Content-Type": "application/json", **dialects.credentials(family)}
    path = dialects.path_of(family, model, stream)
    return exchange(gateway.port, "POST", path, headers, body, PATIENCE_S)


def beside_another(gateway, family, model, body=None, *, stream=False):
    """Return the answer of a call, and check that calls of another channel are served in time
    meanwhile."""
    call(gateway, dialects.CHAT, "good")
    calls, longest_s, began_s = 0, 0.0, time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(call, gateway, family, model, body, stream=stream)
        while not running.done() or not calls:
            other_began_s = time.monotonic()
            assert call(gateway, dialects.CHAT, "good").status == 200
            longest_s = max(longest_s, time.monotonic() - other_began_s)
            calls += 1
            time.sleep(PAUSE_S)
    answered, took_s = running.result(), time.monotonic() - began_s
    print(f"{model}: {answered.status} in {took_s:.1f} s, {len(answered.body) >> 10} KiB;", end=" ")
    print(f"{calls} calls of another, the longest {longest_s:.2f} s")
    assert longest_s < DELAY_MAX_S
    return answered


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SHORT else pytest.mark.long) for name in CASES]
)
def test_others_are_served(gateway, name):
    _, _, family, stream = CASES[name]
    answered = beside_another(gateway, family, name, stream=stream)
    if name.startswith(("packed-", "bare-")):
        assert answered.body == stream_of(name.partition("-")[2])
    if name in ODD:  # byte for byte, except for the model's name
        assert answered.status == 200
        assert answered.body == odd_answer(family).replace(b'"up"', json.dumps(name).encode(), 1)


@pytest.mark.parametrize(
    ("family", "piece", "begin", "end"),
    [
        (dialects.MESSAGES, b"{},", b"[", b"{}]"),
        (dialects.GENERATE, b'";base64,",', b"[", b'""]'),
        pytest.param(dialects.GENERATE, b'"",', b"[", b'""]', marks=pytest.mark.long),
        pytest.param(dialects.MESSAGES, b"[[]],", b"[", b"[]]", marks=pytest.mark.long),
        pytest.param(dialects.GENERATE, b" ", b"[", b"]", marks=pytest.mark.long),
        pytest.param(dialects.MESSAGES, b";base64,", b'"', b'"', marks=pytest.mark.long),
    ],
)
def test_others_are_served_while_an_odd_body_is_read(gateway, family, piece, begin, end):
    before, _, behind = json.dumps(dialects.ask(family, "good", "PIECE")).partition('"PIECE"')
    body = filled(piece, REQUEST_BYTES, before.encode() + begin, end + behind.encode())
    answered = beside_another(gateway, family, "good", body)
    if piece.count(b",") and b";" not in piece:
        assert answered.status == 400
        message = dialects.error_of(family, answered.body, answered.call_id)[2]
        assert "more than 1000000 JSON values" in message
    else:
        assert answered.status in (200, 400, 402, 429), answered.body[:500]


def test_large_requests_pass(gateway):
    for name, messages, tools in large_requests():
        body = encoded(messages, tools).replace(b'"m"', b'"good"', 1)
        answered = beside_another(gateway, dialects.CHAT, "good", body)
        # The tests' vendor accepts 128 tools.
        assert answered.status == 200 or b"must hold 1 to 128" in answered.body, name

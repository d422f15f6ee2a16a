"""A vendor whose answer takes much work for each byte: others of the worker are served."""

import gzip
import json
import threading
import time

import pytest

from tests.support.client import exchange
from tests.support.dialects import CHAT, GENERATE, MESSAGES, ask, credentials, path_of
from tests.support.documents import channel, document
from tests.support.upstream import RawUpstream

SIZE = 4 << 20
PATIENCE_S = 120
# Half a second is promised; what else runs on the machine comes on top. It was 2.7 to 38 s.
DELAY_MAX_S = 2.0
PAUSE_S = 0.01  # between calls of another

FIRST = {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}}]}
DATA = b"data: " + json.dumps(FIRST).encode() + b"\n\n"
END = b"data: [DONE]\n\n"
TINY = b'data: {"choices":[]}\n\n'
PARTS = 400_000
OF_PARTS = {
    "candidates": [{"content": {"parts": [{"text": "a"}, {"text": ""}] * (PARTS // 2)},
                    "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1},
}  # fmt: skip
OF_THOUGHTS = {
    "candidates": [{"content": {"parts": [{"text": "a", "thought": True}, {"text": "b"}]
                                * (PARTS // 2)}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1},
}  # fmt: skip


def repeated(piece, size=SIZE):
    return DATA + piece * (size // len(piece)) + END


STREAMS = {
    "line-feeds": repeated(b"\n"),
    "comments": repeated(b":\n\n"),
    "tiny-events": repeated(b"a\n\n", SIZE // 4),
    "tiny-data": repeated(TINY, SIZE // 4),
    "lines": repeated(b"a\n") + b"\n" + END,
    "many-lines": repeated(b"a\n" * 20_000 + b"\n"),
    "mixed-ends": repeated(b"a\r\n\nb\n\r\n", SIZE // 4),
}


def head(content_type, body, *more):
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *more, "Connection: close", "", ""]).encode()


def answer(body, content_type="text/event-stream", *, packed=False):
    if packed:
        body = gzip.compress(body)
        return head(content_type, body, "Content-Encoding: gzip") + body
    return head(content_type, body) + body


def whole(said, *, packed=False):
    return answer(json.dumps(said).encode(), "application/json", packed=packed)


# name -> what the vendor answers, its family, the client's, whether a stream is asked for
CASES = {
    **{f"packed-{name}": (answer(data, packed=True), CHAT, CHAT, True)
       for name, data in STREAMS.items()},
    **{f"bare-{name}": (answer(data), CHAT, CHAT, True) for name, data in STREAMS.items()},
    "translated-tiny-data": (answer(STREAMS["tiny-data"], packed=True), CHAT, MESSAGES, True),
    "translated-lines": (answer(STREAMS["many-lines"], packed=True), CHAT, MESSAGES, True),
    "whole-parts": (whole(OF_PARTS), GENERATE, CHAT, False),
    "whole-thoughts": (whole(OF_THOUGHTS, packed=True), GENERATE, MESSAGES, False),
    "stream-of-parts": (
        answer(b'data: {"candidates":[{"content":{"parts":[%b]}}]}\n\n'
               % b",".join([b'{"text":"a"}'] * 300_000), packed=True),
        GENERATE, CHAT, True,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def vendors():
    made = {name: RawUpstream(case[0]) for name, case in CASES.items()}
    yield made
    for upstream in made.values():
        upstream.close()


@pytest.fixture(scope="module")
def gateway(launch, vendor, vendors):
    channels = [
        channel(name, CASES[name][1], upstream.url, {name: "up"})
        for name, upstream in vendors.items()
    ]
    channels.append(channel("good", CHAT, vendor.url, {"good": "demo-small"}))
    settings = {"upstream.heartbeat_s": 0}
    return launch(document([*CASES, "good"], channels), settings)


class Other:
    """A caller of another channel, who measures its longest call."""

    def __init__(self, gateway):
        self._gateway = gateway
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._call)
        self.calls = 0
        self.longest_s = 0.0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _call(self):
        while not self._ended.wait(PAUSE_S):
            began_s = time.monotonic()
            answered = call(self._gateway, CHAT, "good", stream=False)
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)
            assert answered.status == 200
            self.calls += 1


def call(gateway, family, model, *, stream):
    body = ask(family, model, "Hello", stream=stream)
    path = path_of(family, model, stream)
    return exchange(gateway.port, "POST", path, credentials(family), body, PATIENCE_S)


@pytest.mark.parametrize("name", CASES)
def test_others_are_served(gateway, name):
    _, _, family, stream = CASES[name]
    call(gateway, CHAT, "good", stream=False)
    with Other(gateway) as other:
        began_s = time.monotonic()
        answered = call(gateway, family, name, stream=stream)
        took_s = time.monotonic() - began_s
    print(f"{name}: {answered.status} in {took_s:.1f} s, {len(answered.body) >> 10} KiB;", end=" ")
    print(f"{other.calls} calls of another, the longest {other.longest_s:.2f} s")
    if name.startswith(("packed-", "bare-")):
        assert answered.body == STREAMS[name.partition("-")[2]]
    assert other.calls
    assert other.longest_s < DELAY_MAX_S

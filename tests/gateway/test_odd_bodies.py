"""Bodies that take long to read, through a gateway: they are answered, and so is everybody else."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.adapters.json.odd_bodies import encoded, filled, large_requests
from tests.support.client import Connection, exchange
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MESSAGES,
    RESPONSES,
    ask,
    credentials,
    error_of,
    path_of,
)
from tests.support.documents import channel, document
from tests.support.upstream import RawUpstream

MODEL, RAW_MODEL = "odd-model", "raw-model"
SIZE = 33_000_000
ANSWER_BYTES = 10_000_000
# Each of them took seconds, and a body of markers some hours. Slack for a loaded machine: how long
# the loop is kept is measured in handlers/relay/test_turns.py.
OTHERS_WAIT_S = 2


@pytest.fixture(scope="module")
def raw():
    with RawUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(launch, vendor, raw):
    channels = [channel(family, family, vendor.url, {MODEL: MODEL}) for family in ALL]
    channels += [channel(f"raw-{family}", family, raw.url, {RAW_MODEL: "m"}) for family in ALL]
    return launch(document([MODEL, RAW_MODEL], channels))


class Others:
    """Somebody else, who asks all the time; `longest_s` is how long it took at worst."""

    def __init__(self, port):
        self.longest_s, self.asked = 0.0, 0
        self._port, self._over = port, threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _ask(self):
        with Connection(self._port) as connection:
            while not self._over.wait(0.002):
                began_s = time.monotonic()
                connection.request("GET", "/livez")
                assert connection.read().status == 200
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)
                self.asked += 1


def begin_of(family):
    """(beginning, end) of a request around a piece of its own."""
    text = json.dumps(ask(family, MODEL, "PIECE"))
    begin, _, end = text.partition('"PIECE"')
    return begin.encode(), end.encode()


def odd_request(family, piece, around):
    begin, end = begin_of(family)
    opening, closing = around
    return filled(piece, SIZE, begin + opening, closing + end)


@pytest.mark.parametrize("family", [MESSAGES, GENERATE])
@pytest.mark.parametrize(("piece", "around"), [
    (b"{},", (b"[", b"{}]")),
    (b'"",', (b"[", b'""]')),
    (b"[[]],", (b"[", b"[]]")),
    (b" ", (b"[", b"]")),
    (b";base64,", (b'"', b'"')),
    (b'";base64,",', (b"[", b'""]')),
])  # fmt: skip
def test_others_are_served_while_an_odd_body_is_read(gateway, family, piece, around):
    body = odd_request(family, piece, around)
    with Others(gateway.port) as others:
        headers = {"Content-Type": "application/json", **credentials(family)}
        answer = exchange(gateway.port, "POST", path_of(family, MODEL), headers, body)
    if piece.count(b",") and b";" not in piece:
        assert answer.status == 400
        assert "more than 1000000 JSON values" in error_of(family, answer.body, answer.call_id)[2]
    else:
        assert answer.status in (200, 400, 402, 429), answer.body[:500]
    assert others.asked > 0 and others.longest_s < OTHERS_WAIT_S


def test_large_requests_pass(gateway, vendor):
    for name, messages, tools in large_requests():
        sent = encoded(messages, tools).replace(b'"m"', b'"%b"' % MODEL.encode(), 1)
        with Others(gateway.port) as others:
            headers = {"Content-Type": "application/json", **credentials(CHAT)}
            answer = exchange(gateway.port, "POST", path_of(CHAT, MODEL), headers, sent)
        # The vendor of the tests takes 128 tools.
        assert answer.status == 200 or b"must hold 1 to 128" in answer.body, name
        assert others.longest_s < OTHERS_WAIT_S, name


ANSWERS = {
    CHAT: (b'{"id":"c1","model":"m","choices":[', b"]", b'"prompt_tokens":1,"completion_tokens":2'),
    RESPONSES: (b'{"id":"r1","model":"m","status":"completed","output":[', b"]",
                b'"input_tokens":1,"output_tokens":2'),
    MESSAGES: (b'{"id":"m1","type":"message","model":"m","content":[', b"]",
               b'"input_tokens":1,"output_tokens":2'),
    GENERATE: (b'{"responseId":"g1","modelVersion":"m","candidates":[', b"]",
               b'"promptTokenCount":1,"candidatesTokenCount":2'),
}  # fmt: skip


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("piece", [b"{},", b'"",'])
def test_others_are_served_while_an_odd_answer_is_read(gateway, raw, family, piece):
    begin, end, usage = ANSWERS[family]
    name = b"usageMetadata" if family == GENERATE else b"usage"
    body = filled(piece, ANSWER_BYTES, begin, b"{}" + end + b',"%b":{%b}}' % (name, usage))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with Others(gateway.port) as others, ThreadPoolExecutor(1) as pool:
        asked = json.dumps(ask(family, RAW_MODEL, "x")).encode()
        headers = {"Content-Type": "application/json", **credentials(family)}
        path = path_of(family, RAW_MODEL)
        waiting = pool.submit(exchange, gateway.port, "POST", path, headers, asked)
        peer = raw.accept()
        peer.send(head % len(body) + body)
        answer = waiting.result(60)
        peer.close()
    assert answer.status == 200
    # Byte for byte, but for the model's name.
    assert answer.body == body.replace(b'"m"', b'"%b"' % RAW_MODEL.encode(), 1)
    assert others.longest_s < OTHERS_WAIT_S

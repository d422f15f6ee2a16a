"""Channels that change while calls run: running calls end as they started, new ones use the new
values."""

import contextlib
import json
import time

import pytest

from tests.support.client import Connection, exchange, wait_until
from tests.support.dialects import CHAT, PATHS, ask, check_refusal, credentials
from tests.support.documents import channel, document
from tests.support.echo import CHUNK, Echo, answer_of
from tests.support.upstream import STREAM_HEAD, RawUpstream

CHANGES_AFTER_S = 2.5  # by then a running gateway has applied them
LAST = json.dumps(CHUNK).encode()
PIECE = LAST.replace(b'"stop"', b"null")
CHANGES = {
    "disabled": ("channel", "disable", "disabled"),
    "draining": ("channel", "drain", "draining"),
    "new-key": ("channel", "set", "new-key", "keys=sk-brand-new"),
    "moved": ("channel", "set", "moved"),
    "removed": ("channel", "remove", "removed"),
}


@pytest.fixture(scope="module")
def elsewhere():
    with contextlib.closing(Echo()) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def upstreams():
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(RawUpstream()) for name in CHANGES}


@pytest.fixture(scope="module")
def gateway(launch, upstreams):
    channels = [
        channel(name, CHAT, one.url, {name: "up"}, keys=["sk-old"])
        for name, one in upstreams.items()
    ]
    return launch(document([*CHANGES], channels))


class Stream:
    """A streamed call in progress."""

    def __init__(self, gateway, upstream, model):
        self.client = Connection(gateway.port)
        self.client.request("POST", PATHS[CHAT], credentials(), ask(CHAT, model, stream=True))
        self.peer = upstream.accept()
        self.peer.send(STREAM_HEAD)
        self.peer.chunk(b"data: %b\n\n" % PIECE)
        self.answer = self.client.read_head()
        assert b"Hi" in self.client.read_chunk()

    def end(self):
        """Return the rest of what the client receives."""
        self.peer.chunk(b"data: %b\n\ndata: [DONE]\n\n" % LAST)
        self.peer.send(b"0\r\n\r\n")
        self.client.read_body(self.answer)
        self.client.close()
        self.peer.close()
        return self.answer


@pytest.fixture(scope="module")
def changed(gateway, upstreams, elsewhere):
    """Return what running streams received after all channels had changed, and /status
    meanwhile."""
    streams = {name: Stream(gateway, one, name) for name, one in upstreams.items()}
    for name, words in CHANGES.items():
        more = (f"base_url={elsewhere.url}",) if name == "moved" else ()
        gateway.run(*words, *more)
    time.sleep(CHANGES_AFTER_S)
    ending = status_of(gateway)
    answers = {name: stream.end() for name, stream in streams.items()}
    return answers, ending


def status_of(gateway):
    _, _, body = gateway.call("GET", "/status", port=gateway.ops_port)
    [worker] = json.loads(body)["workers"]
    assert worker["upstream_surplus"] == 0
    return worker["ending"]


def call(gateway, model):
    return exchange(gateway.port, "POST", PATHS[CHAT], credentials(CHAT), ask(CHAT, model))


@pytest.mark.parametrize("name", CHANGES)
def test_running_streams_are_not_touched(gateway, changed, name):
    answer = changed[0][name]
    assert answer.status == 200 and answer.whole
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert gateway.record(answer.call_id)["outcome"] == "ok"


def test_operators_see_what_still_runs(gateway, changed):
    assert changed[1] == {"disabled": 1, "draining": 1, "removed": 1}
    assert wait_until(lambda: status_of(gateway) == {})


@pytest.mark.parametrize(
    ("name", "error"), [("disabled", "E08"), ("removed", "E08"), ("draining", "E09")]
)
def test_channels_that_take_no_calls(gateway, changed, name, error):
    check_refusal(call(gateway, name), CHAT, error)
    listed = exchange(gateway.port, "GET", "/v1/models", credentials(CHAT)).json["data"]
    assert (name in {one["id"] for one in listed}) is (error == "E09")


def test_new_calls_use_what_is_new(gateway, changed, upstreams, elsewhere):
    assert call(gateway, "moved").status == 200
    assert "Bearer sk-old" in elsewhere.requests[-1]
    with Connection(gateway.port) as client:
        client.request("POST", PATHS[CHAT], credentials(), ask(CHAT, "new-key"))
        with contextlib.closing(upstreams["new-key"].accept()) as peer:
            assert b"Bearer sk-brand-new" in peer.request
            peer.send(answer_of(400, {"error": {"message": "no"}}))

"""The stream with which `doctor` tests a proxy: paced, one at a time for each key."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from handlers.entries import stream_check
from handlers.entries.stream_check import EVENTS, PATH
from handlers.relay.limits.cells import private_cells
from handlers.relay.limits.limits import Limits
from tests.handlers.entries.test_models import Keys, bearer
from tests.handlers.relay.calls import KEY
from tests.support.dialects import check_ids
from tests.support.served import serving, until


def site(**options):
    stored = {"good": KEY, "other": replace(KEY, id="l"), "disabled": replace(KEY, disabled=True)}
    relay = SimpleNamespace(keys=Keys(stored), limits=Limits(private_cells()))
    return serving(relay=relay, **options)


async def begun(served, secret="good"):
    """Return a peer that has received the head of its stream."""
    peer = await served.peer()
    await peer.request("GET", PATH, bearer(secret))
    assert (await peer.head()).status == 200
    return peer


async def test_the_events_come_in_their_time(monkeypatch):
    monkeypatch.setattr(stream_check, "INTERVAL_S", 0.03)
    async with site() as served:
        peer = await served.peer()
        await peer.request("GET", PATH, bearer(traceparent="00-1-2-01"))
        answer = await peer.head()
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        check_ids(answer)
        began, found = time.monotonic(), []
        while data := await peer.chunk():
            found.append(json.loads(data.removeprefix(b"data: ")))
        assert time.monotonic() - began > (EVENTS - 2) * 0.03
        assert [one["event"] for one in found] == list(range(1, EVENTS + 1))
        assert {one["of"] for one in found} == {EVENTS}
        assert found[0]["headers"] == ["authorization", "traceparent"]
        assert not found[0]["forwarded"]


async def test_one_at_a_time_for_each_key():
    async with site() as served:
        await begun(served)
        second = await served.ask("GET", PATH, bearer())
        assert (second.status, second.json["error"]["code"]) == (429, "rate_limit_exceeded")
        assert second.headers["content-type"] == "application/json"
        assert second.headers["retry-after"] == "2"
        await begun(served, "other")


async def test_a_client_that_leaves_ends_it():
    async with site() as served:
        (await begun(served)).leave()
        await until(lambda: served.server.connections == 0)
        await begun(served)


@pytest.mark.parametrize(
    ("secret", "code"),
    [("nobody-has-this-key", "invalid_api_key"), ("disabled", "api_key_disabled")],
)
async def test_the_key_has_to_be_good(secret, code):
    async with site() as served:
        answer = await served.ask("GET", PATH, bearer(secret))
        assert (answer.status, answer.json["error"]["code"]) == (401, code)


async def test_head_gets_the_head_alone_and_takes_no_slot():
    async with site() as served:
        for _ in range(2):
            answer = await served.ask("HEAD", PATH, bearer())
            assert (answer.status, answer.body) == (200, b"")
            assert answer.headers["content-type"] == "text/event-stream"


async def test_other_methods_are_refused_after_their_body():
    async with site(max_body_bytes=2048) as served:
        answer = await served.ask("POST", PATH, bearer(), b"x" * 2048)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")

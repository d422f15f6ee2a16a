"""Hundreds of channels with long names drain at once: the gateway stays ready and tells of all."""

import json

import pytest

from tests.support.client import Connection, encode_head, wait_until
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import channel, document
from tests.support.upstream import RawUpstream

NAMES = [f"{number:03d}-{'語' * 124}" for number in range(500)]


@pytest.fixture
def upstream():
    running = RawUpstream()
    yield running
    running.close()


@pytest.fixture
def gateway(launch_own, upstream):
    models = [f"model-{number}" for number in range(len(NAMES))]
    channels = [
        channel(name, CHAT, upstream.url, {model: "up"})
        for name, model in zip(NAMES, models, strict=True)
    ]
    return launch_own(document(models, channels))


@pytest.fixture
def calls(gateway, upstream):
    """A call that waits for its answer at each channel."""
    headers = {**credentials(CHAT), "Content-Type": "application/json"}
    ends = []
    for number in range(len(NAMES)):
        client = Connection(gateway.port)
        body = json.dumps(ask(CHAT, f"model-{number}")).encode()
        client.send(encode_head("POST", PATHS[CHAT], headers, body) + body)
        ends += [client, upstream.accept()]
    yield
    for end in ends:
        end.close()


def test_all_draining_channels_are_named(gateway, calls):
    def ending():
        status = json.loads(gateway.run("status", "--json"))
        return {name for worker in status["workers"] for name in worker["ending"]}

    gateway.apply({"channel": [{"name": name, "enabled": False} for name in NAMES]})
    assert wait_until(lambda: ending() == {*NAMES}, step_s=0.5)
    assert gateway.ready()

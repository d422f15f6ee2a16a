"""A worker's memory under unfinished bodies, compressed or not: it is bounded, however many are
sent."""

import contextlib
import gzip
import json
import select

import pytest

from tests.support.client import Connection, encode_head, exchange, wait_until
from tests.support.coins import person
from tests.support.dialects import ALL, CHAT, ask, check_refusal, credentials, path_of
from tests.support.documents import PRICE, channel
from tests.support.wallets import joined, secret_of

MODEL = "any-model"
MIB = 1 << 20
BODIES = 80
BODY_KIB = 15_000
REFUSED_S = 20
RESIDENT_MAX_KIB = 450 << 10
KEY_SHARE_KIB = 32 << 10  # of the default of server.body_memory_bytes


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    """Return a process that has not read anything yet; its memory is measured."""
    base = {
        "model": [{"name": MODEL, "price": PRICE}],
        "group": [{"name": "all"}],
        "channel": [channel(family, family, vendor.url, {MODEL: MODEL}) for family in ALL],
    }
    greedy = [person(name, "1000", rpm=5, concurrency=1) for name in ("greedy", "greedier")]
    return launch(joined(base, *greedy, person("other", "1000")), shared=False)


def plain():
    return b" " * 16_000_000


def packed():
    return gzip.compress(bytes(15 << 20), 9)


def headers_of(family, name, **more):
    return {"Content-Type": "application/json", **credentials(family, secret_of(name)), **more}


def unfinished(port, family, name, data, **headers):
    """Open a connection and send a body without its last byte, or as much of it as is accepted."""
    connection = Connection(port)
    path = path_of(family, MODEL)
    connection.send(encode_head("POST", path, headers_of(family, name, **headers), data))
    with contextlib.suppress(ConnectionError):
        connection.send(data[:-1])
    return connection


def readable(sockets):
    """Return the indices of the sockets that have something to read."""
    ready, _, _ = select.select(sockets, [], [], 0)
    return [at for at, socket in enumerate(sockets) if socket in ready]


def peak_kib(pid):
    """Return the peak memory of a process."""
    with open(f"/proc/{pid}/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmHWM"].split()[0])


def check_record(gateway, answer, code):
    record = gateway.record(answer.call_id)
    assert (record["outcome"], record["error_code"]) == ("refused", code)


def body_of(prompt, size):
    body = json.dumps(ask(CHAT, MODEL, prompt)).encode()
    return body + b" " * (size - len(body))


def call(gateway, name, size=0):
    body = body_of("[[demo ms=0]]", size)
    return exchange(gateway.port, "POST", path_of(CHAT, MODEL), headers_of(CHAT, name), body)


@pytest.mark.parametrize(
    ("name", "body", "coding"),
    [
        ("greedy", plain, {}),
        pytest.param("greedier", packed, {"Content-Encoding": "gzip"}, marks=pytest.mark.long),
    ],
)
def test_unfinished_bodies_of_one_key_do_not_fill_the_memory(gateway, name, body, coding):
    (pid,) = gateway.worker_pids()
    idle_kib, data = peak_kib(pid), body()
    families = [ALL[at % len(ALL)] for at in range(BODIES)]
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(unfinished(gateway.port, family, name, data, **coding))
            for family in families
        ]
        assert call(gateway, "other", 2 * MIB).status == 200
        # Which bodies fit into the share depends on the order in which their chunks arrive.
        sockets = [connection.socket for connection in connections]
        wait_until(lambda: len(readable(sockets)) >= BODIES - KEY_SHARE_KIB // BODY_KIB, REFUSED_S)
        refused = readable(sockets)
        assert len(refused) >= BODIES - KEY_SHARE_KIB // BODY_KIB
        for family in ALL:
            at = next(at for at in refused if families[at] == family)
            answer = connections[at].read()
            check_refusal(answer, family, "E20", retry_after="1")
            check_record(gateway, answer, "rate_limit_exceeded")
    assert peak_kib(pid) < RESIDENT_MAX_KIB
    assert peak_kib(pid) - idle_kib < 3 * KEY_SHARE_KIB  # refused bodies leave nothing behind
    wait_until(lambda: call(gateway, name, 15_000_000).status == 200)

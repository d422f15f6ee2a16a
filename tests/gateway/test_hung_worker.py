"""A worker whose loop stands still: the port refuses, the worker is replaced, no call is lost."""

import os
import signal

import pytest

from commands.process.child import CLOSE_LOOKS, SILENT_LOOKS
from tests.support.client import Connection, exchange, wait_until
from tests.support.dialects import CHAT, ask, credentials, path_of
from tests.support.journal import marked
from tests.support.load import LOST, MODEL, gateway_before

PATIENCE_S = 20


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, vendor):
    gateway = gateway_before(vendor, tmp_path_factory.mktemp("hung") / "node")
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.close()


def call(gateway):
    headers, body = credentials(CHAT), ask(CHAT, MODEL, "hello")
    return exchange(gateway.port, "POST", path_of(CHAT, MODEL), headers, body)


def refuses(gateway):
    """True: refused. Of a stopped worker the queue of connections fills: then nothing answers."""
    try:
        Connection(gateway.port, patience_s=1).close()
    except ConnectionRefusedError:
        return True
    except TimeoutError:
        pass
    return False


def test_a_worker_that_goes_on_takes_calls_again(gateway):
    (pid,) = gateway.worker_pids()
    os.kill(pid, signal.SIGSTOP)
    assert wait_until(lambda: refuses(gateway), CLOSE_LOOKS + PATIENCE_S)
    os.kill(pid, signal.SIGCONT)
    assert wait_until(lambda: not refuses(gateway), PATIENCE_S)
    assert call(gateway).status == 200
    assert gateway.worker_pids() == [pid]
    assert "cannot accept" not in gateway.log()


def test_one_that_hangs_is_replaced_and_its_calls_are_recorded(gateway):
    (pid,) = gateway.worker_pids()
    with Connection(gateway.port) as connection:
        body = ask(CHAT, MODEL, "[[demo ms=100 chunks=600]]", stream=True)
        path = path_of(CHAT, MODEL, stream=True)
        connection.request("POST", path, credentials(CHAT), body)
        answer = connection.read_head()
        assert wait_until(lambda: answer.call_id in marked(gateway), PATIENCE_S)
        os.kill(pid, signal.SIGSTOP)
        assert wait_until(lambda: refuses(gateway), CLOSE_LOOKS + PATIENCE_S)
        assert wait_until(lambda: gateway.worker_pids() != [pid], SILENT_LOOKS + PATIENCE_S)
    assert wait_until(gateway.ready, PATIENCE_S)
    assert call(gateway).status == 200
    assert gateway.record(answer.call_id, PATIENCE_S)["outcome"] == LOST
    gateway.run("books", "verify")

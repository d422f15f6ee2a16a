"""Attacks on the Hub by clients that have not signed in: it stays reachable, and its log short."""

import os
import resource
import signal
import socket
from pathlib import Path

import pytest

from tests.gateway.test_hub import answers, hub_pid, until
from tests.handlers.hub.browser import Browser
from tests.support.gateway import Gateway
from tests.support.ports import HOST, free_port

HALF_OPEN = 3000
DESCRIPTORS = 1024
# Allows for connections that the Hub's own threads open to the store meanwhile.
OWN_DESCRIPTORS = 32
LOG_MAX_BYTES = 65536
PATIENCE_S = 60


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    hub_port = free_port()
    settings = {
        "hub.enabled": "true",
        "hub.port": hub_port,
        "hub.oidc_issuer": f"http://127.0.0.1:{free_port()}",
        "hub.oidc_client_id": "sluice",
        "server.header_timeout_s": 2,
        "log.level": "info",
    }
    gateway = Gateway(tmp_path_factory.mktemp("hub-attacks"), settings)
    gateway.start()
    gateway.hub_port = hub_port
    until(lambda: answers(hub_port))
    limit_descriptors(gateway)
    yield gateway
    gateway.kill()


def limit_descriptors(gateway):
    """Restart the Hub with the usual limit of descriptors."""
    before = hub_pid(gateway)
    supervisor = gateway.process.pid
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    os.kill(before, signal.SIGKILL)
    until(lambda: hub_pid(gateway) not in (None, before) and answers(gateway.hub_port))
    assert resource.prlimit(hub_pid(gateway), resource.RLIMIT_NOFILE)[0] == DESCRIPTORS


@pytest.fixture
def opened(gateway):
    """Yield opened(text, how many), which opens connections and sends this text on each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * HALF_OPEN), hard))
    clients = []

    def connect(text, count):
        for _ in range(count):
            client = socket.create_connection((HOST, gateway.hub_port), PATIENCE_S)
            clients.append(client)
            try:
                client.sendall(text)
            except OSError:
                pass  # closed already
        return clients

    yield connect
    for client in clients:
        client.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def descriptors(gateway):
    return len(os.listdir(f"/proc/{hub_pid(gateway)}/fd"))


def test_half_open_connections_are_closed_and_do_not_keep_others_out(gateway, opened):
    logged, idle = len(gateway.log()), descriptors(gateway)
    clients = opened(b"GET / HTTP/1.1\r\nHost: h\r\n", HALF_OPEN)
    assert descriptors(gateway) < DESCRIPTORS
    assert Browser(gateway.hub_port).get("/sign-in").status == 200
    until(lambda: descriptors(gateway) < idle + OWN_DESCRIPTORS, PATIENCE_S)
    for client in clients:
        client.settimeout(PATIENCE_S)
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            pass
    assert len(gateway.log()) - logged < LOG_MAX_BYTES


def test_the_code_of_a_provider_is_in_no_line(gateway):
    """This holds at every log level, and whether the sign-in succeeds or something breaks."""
    gateway.call("PUT", "/log-level", b"debug", port=gateway.ops_port)
    for path in ("/sign-in/openid/back", "/no-such-page", "/usage"):
        for method in ("GET", "POST"):
            browser = Browser(gateway.hub_port)
            browser.ask(method, f"{path}?state=a&code=unseen-code-of-a-provider")
    until(lambda: "/sign-in/openid/back" in gateway.log())
    assert "unseen-code" not in Path(gateway.log_path).read_text()

"""Gateways for the tests of handlers: real processes, shared by a module, with one upstream."""

import contextlib
import socket

import pytest

from tests.gateway import Gateway
from tests.upstream import RawUpstream, ScriptedUpstream


@pytest.fixture(scope="session")
def vendor():
    """The scripted vendor of all gateways."""
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="session")
def dead_port():
    """A port that refuses connections, for as long as the session lasts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture(scope="session")
def full_port():
    """A port that answers no connection attempt: its queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.fixture(scope="session")
def nonsense():
    """An upstream that speaks no HTTP."""
    with RawUpstream(b"220 mail.example ESMTP\r\n250 hello\r\n\r\n") as upstream:
        yield upstream


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    """launch(document, settings) -> a running gateway; ended with the module."""
    with contextlib.ExitStack() as stack:

        def start(document, settings=None, *, follow=True):
            gateway = Gateway(tmp_path_factory.mktemp("gateway"), settings)
            stack.callback(gateway.close)
            gateway.apply(document)
            gateway.start()
            if follow:
                gateway.follow()
            return gateway

        yield start

"""Gateways as real processes, shared by a module, with one upstream; what may be broken."""

import contextlib
import ctypes
import socket

import pytest

from tests.support.gateway import Gateway
from tests.support.mariadb import MariaDb
from tests.support.upstream import RawUpstream, ScriptedUpstream

SMALL_DISK = b"size=16m"
MS_RDONLY, MS_REMOUNT = 1, 32


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
    with _launching(tmp_path_factory) as start:
        yield start


@pytest.fixture
def launch_own(tmp_path_factory):
    """The same, ended with the test: for modules where each test needs a gateway of its own."""
    with _launching(tmp_path_factory) as start:
        yield start


@contextlib.contextmanager
def _launching(tmp_path_factory):
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


@pytest.fixture(scope="session")
def _second_mariadb():
    # Each commit is on the disk, as an operator must have it: what was committed stays.
    server = MariaDb("--innodb-flush-log-at-trx-commit=1")
    yield server
    server.close()


@pytest.fixture
def breakable_mariadb(_second_mariadb):
    """A MariaDB that no other test uses at the same time: to be killed, frozen, made read-only."""
    yield _second_mariadb
    _second_mariadb.restore()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 16 MiB; needs the right to mount, which root in a container may lack."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder = tmp_path / "disk"
    folder.mkdir()
    if libc.mount(b"none", bytes(folder), b"tmpfs", 0, SMALL_DISK) != 0:
        pytest.skip("mounting a tmpfs needs root and the capability to mount")
    yield folder
    libc.umount2(bytes(folder), 2)


@pytest.fixture
def remount(small_disk):
    """remount(flags) of the small disk: 0 or MS_RDONLY."""

    def change(flags):
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mount(b"none", bytes(small_disk), None, MS_REMOUNT | flags, None) == 0

    return change


@pytest.fixture
def read_only(remount):
    """read_only(): from then on nothing can be written on the small disk."""
    return lambda: remount(MS_RDONLY)

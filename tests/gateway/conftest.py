"""Fixtures for tests of real gateway processes: gateways shared by a module, one upstream, and a
database and a disk that a test may break."""

import contextlib
import ctypes
import socket

import pytest

from tests.support.gateway import Gateway
from tests.support.mariadb import MariaDb
from tests.support.upstream import RawUpstream, ScriptedUpstream
from tests.support.wallets import Wallets

SMALL_DISK = b"size=16m"
MS_RDONLY, MS_REMOUNT = 1, 32


@pytest.fixture(scope="session")
def vendor():
    """Yield the scripted vendor of all gateways."""
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="session")
def dead_port():
    """Yield a port that refuses connections as long as the session lasts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture(scope="session")
def full_port():
    """Yield a port that answers no connection attempt, because its queue is full."""
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
def places(vendor, dead_port, full_port):
    """Return base URLs of upstreams: one that answers, two that cannot be reached."""
    dead, full = f"http://127.0.0.1:{dead_port}", f"http://127.0.0.1:{full_port}"
    return {"vendor": vendor.url, "dead": dead, "full": full}


@pytest.fixture(scope="session")
def nonsense():
    """Yield an upstream that does not speak HTTP."""
    with RawUpstream(b"220 mail.example ESMTP\r\n250 hello\r\n\r\n") as upstream:
        yield upstream


class Pool:
    """Running gateways that later modules reuse, with a new document, if the settings are these."""

    SETTINGS = (
        {},
        {"server.workers": 2},
        {"upstream.heartbeat_s": 0, "upstream.commit_after_s": 0},
        {"server.workers": 2, "upstream.commit_after_s": 0},
    )
    MOST_IDLE = 2  # each one looks into its store once a second

    def __init__(self, make_folder):
        self._make_folder = make_folder
        self._idle = []

    def take(self, document, settings, *, shared):
        for gateway in [one for one in self._idle if shared and one.made_with == settings]:
            self._idle.remove(gateway)
            taken = False
            try:
                taken = gateway.take_over(document)
            finally:
                if not taken:
                    gateway.close()
            if taken:
                return gateway
        gateway = Gateway(self._make_folder("gateway"), settings)
        gateway.made_with = settings if shared else None
        gateway.apply(document)
        gateway.start()
        return gateway

    def give_back(self, gateway):
        if gateway.tail is not None:
            gateway.tail.close()
            gateway.tail = None
        if gateway.made_with not in self.SETTINGS:
            gateway.close()
            return
        self._idle.append(gateway)
        if len(self._idle) > self.MOST_IDLE:
            self._idle.pop(0).close()

    def close(self):
        for gateway in self._idle:
            gateway.close()


@pytest.fixture(scope="session")
def pool(tmp_path_factory):
    made = Pool(tmp_path_factory.mktemp)
    yield made
    made.close()


@pytest.fixture(scope="module")
def launch(pool):
    """Return launch(document, settings), which returns a running gateway with the module's own
    objects.

    The gateway may have served another module before, whose objects, records and log are hidden.
    Use `shared=False` in a module that kills processes, or that checks what commands say of the
    whole store.
    """
    with _launching(pool) as start:
        yield start


@pytest.fixture
def launch_own(pool):
    """Return the same for one test, for modules where each test needs objects of its own."""
    with _launching(pool) as start:
        yield start


@contextlib.contextmanager
def _launching(pool):
    with contextlib.ExitStack() as stack:

        def start(document, settings=None, *, follow=True, shared=True):
            gateway = pool.take(document, settings or {}, shared=shared)
            stack.callback(pool.give_back, gateway)
            if follow:
                gateway.follow()
            return gateway

        yield start


@pytest.fixture(scope="module")
def wallets(gateway):
    """Yield the wallets of the module's gateway."""
    made = Wallets(gateway)
    yield made
    made.close()


@pytest.fixture(scope="session")
def _second_mariadb():
    # Each commit is flushed to the disk, as required of operators: what was committed is not lost.
    server = MariaDb("--innodb-flush-log-at-trx-commit=1")
    yield server
    server.close()


@pytest.fixture
def breakable_mariadb(_second_mariadb):
    """Yield a MariaDB that no other test uses at the same time, to kill, freeze or make
    read-only."""
    yield _second_mariadb
    _second_mariadb.restore()


@pytest.fixture
def small_disk(tmp_path):
    """Yield a file system of 16 MiB; needs the right to mount, which root in a container may
    lack."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder = tmp_path / "disk"
    folder.mkdir()
    if libc.mount(b"none", bytes(folder), b"tmpfs", 0, SMALL_DISK) != 0:
        pytest.skip("mounting a tmpfs needs root and the capability to mount")
    yield folder
    libc.umount2(bytes(folder), 2)


@pytest.fixture
def remount(small_disk):
    """Return remount(flags) for the small disk; flags: 0 or MS_RDONLY."""

    def change(flags):
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mount(b"none", bytes(small_disk), None, MS_REMOUNT | flags, None) == 0

    return change


@pytest.fixture
def read_only(remount):
    """Return read_only(); after its call nothing can be written on the small disk."""
    return lambda: remount(MS_RDONLY)

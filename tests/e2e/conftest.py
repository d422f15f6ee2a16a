"""Fixtures of tests with real processes: a MariaDB that may be broken, a small disk."""

import ctypes

import pytest

from tests.mariadb import MariaDb

SMALL_DISK = b"size=16m"
MS_RDONLY, MS_REMOUNT = 1, 32


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
def read_only(small_disk):
    """read_only(): from then on nothing can be written on the small disk."""

    def remount():
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mount(b"none", bytes(small_disk), None, MS_REMOUNT | MS_RDONLY, None) == 0

    return remount

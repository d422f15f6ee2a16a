"""A MariaDB for tests: a private server, started once a session, with fresh databases on demand."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time

import pymysql
import pytest

START_TIMEOUT_S = 60


class MariaDb:
    """A private server: its port, and fresh databases on it."""

    def __init__(self, port, process):
        self.port = port
        self.process = process
        self._made = 0

    def run(self, statement):
        with contextlib.closing(
            pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True)
        ) as connection:
            connection.cursor().execute(statement)

    def fresh_url(self):
        self._made += 1
        name = f"test_{self._made}"
        self.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return f"mysql://root@127.0.0.1:{self.port}/{name}"


def _missing(reason):
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _install(folder):
    as_user = []
    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam("mysql")
        except KeyError:
            _missing("there is no user mysql to run mariadbd as")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = ["--user=mysql"]
    options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(
        ["mariadb-install-db", "--no-defaults", *as_user, f"--datadir={folder}/data", *options],
        check=True,
        capture_output=True,
        timeout=START_TIMEOUT_S,
    )
    return as_user


def _wait(port, process):
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            pymysql.connect(host="127.0.0.1", port=port, user="root").close()
            return
        except pymysql.err.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail("mariadbd did not start")
            time.sleep(0.1)


@pytest.fixture(scope="session")
def mariadb():
    """A MariaDB server of this test session alone; skipped where the package is missing."""
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    server = shutil.which("mariadbd", path=path)
    if not server or not shutil.which("mariadb-install-db", path=path):
        _missing("mariadbd is not installed (Debian: mariadb-server)")
    # Not below pytest's own folder: the user mysql may not look into that.
    folder = tempfile.mkdtemp(prefix="sluice-mariadb-")
    os.chmod(folder, 0o755)
    try:
        as_user = _install(folder)
        port = _free_port()
        process = subprocess.Popen(
            [
                server,
                "--no-defaults",
                *as_user,
                f"--datadir={folder}/data",
                f"--socket={folder}/socket",
                f"--pid-file={folder}/pid",
                f"--port={port}",
                "--bind-address=127.0.0.1",
                "--skip-log-bin",
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-buffer-pool-size=64M",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait(port, process)
            yield MariaDb(port, process)
        finally:
            process.terminate()
            process.wait(START_TIMEOUT_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

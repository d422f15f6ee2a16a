"""A MariaDB for tests: a private server, started once a session, with fresh databases on demand.

Tests of outages create another `MariaDb` that they may kill and freeze.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pymysql
import pytest

from tests.support import leash
from tests.support.ports import free_port
from tests.support.programs import missing, program

START_TIMEOUT_S = 60
LOG_CHARS = 3000

# Otherwise each connection loads the system's certificates, 20 ms of CPU, without using them.
_new_context = pymysql.connections.Connection._create_ssl_ctx
_contexts = {}


def _shared_context(connection, parameters):
    key = repr(parameters)
    if key not in _contexts:
        _contexts[key] = _new_context(connection, parameters)
    return _contexts[key]


pymysql.connections.Connection._create_ssl_ctx = _shared_context


class MariaDb:
    """A private server: its port, and fresh databases on it. `options` are mariadbd's; those in
    `first` apply only to its first start."""

    def __init__(self, *options, first=()):
        self.program = program("mariadbd", package="mariadb-server")
        # Outside pytest's own folder, which the user mysql may not read.
        self._folder = tempfile.mkdtemp(prefix="sluice-mariadb-")
        leash.drop(self._folder)
        os.chmod(self._folder, 0o755)
        self._made = 0
        self.port = free_port()
        self.process = None
        self.environment = {}  # for the server, in addition to the test's own
        try:
            as_user = _install(self._folder)
            self._command = self._command_line(as_user, options)
            self.start(*first)
        except BaseException:
            self.close()
            raise

    def _command_line(self, as_user, options):
        return [
            self.program,
            "--no-defaults",
            *as_user,
            f"--datadir={self._folder}/data",
            f"--socket={self._folder}/socket",
            f"--pid-file={self._folder}/pid",
            # A starting server clears temporary files, even those of other servers in the folder.
            f"--tmpdir={self._folder}/tmp",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--skip-log-bin",
            "--innodb-buffer-pool-size=64M",
            *options,
        ]

    def run(self, statement):
        """Run a statement as root; return its rows."""
        with contextlib.closing(
            pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True)
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return cursor.fetchall()

    def fresh_url(self, user="root"):
        """Return the URL of a new empty database; a user other than root is created and owns only
        that."""
        self._made += 1
        name = f"test_{self._made}"
        self.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        if user != "root":
            self.run(f"CREATE USER IF NOT EXISTS '{user}'@'%'")
            self.run(f"GRANT ALL ON {name}.* TO '{user}'@'%'")
        return f"mysql://{user}@127.0.0.1:{self.port}/{name}"

    def start(self, *options):
        """Start the server on its existing data, with further options; wait until it answers."""
        log_path = Path(self._folder) / "log"
        with log_path.open("wb") as log:
            self.process = leash.Popen(
                [*self._command, *options],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **self.environment},
            )
        _wait(self.port, self.process, log_path)

    def kill(self):
        """Kill the server with SIGKILL."""
        self.process.kill()
        self.process.wait(START_TIMEOUT_S)

    def freeze(self):
        """Stop the server with SIGSTOP: connections stay open and nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def restore(self):
        """Make the server run and write again, whatever a test did to it."""
        if self.process.poll() is not None:
            self.start()
        self.thaw()
        self.run("SET GLOBAL read_only = 0")

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.kill()  # its data is no longer needed; a clean shutdown would still write it
        shutil.rmtree(self._folder, ignore_errors=True)


def _install(folder):
    as_user = []
    os.mkdir(f"{folder}/tmp")
    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam("mysql")
        except KeyError:
            missing("there is no user mysql to run mariadbd as")
        for owned in (folder, f"{folder}/tmp"):
            os.chown(owned, user.pw_uid, user.pw_gid)
        as_user = ["--user=mysql"]
    options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
    # A folder of its own: a starting server removes temporary tables that it finds, even
    # another's.
    options += [f"--tmpdir={folder}/tmp"]
    subprocess.run(
        ["mariadb-install-db", "--no-defaults", *as_user, f"--datadir={folder}/data", *options],
        check=True,
        capture_output=True,
        timeout=START_TIMEOUT_S,
    )
    return as_user


def _wait(port, process, log_path):
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            pymysql.connect(host="127.0.0.1", port=port, user="root").close()
            return
        except pymysql.err.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"mariadbd did not start: {log_path.read_text()[-LOG_CHARS:]}")
            time.sleep(0.1)


@pytest.fixture(scope="session")
def mariadb():
    """Yield a MariaDB server of this test session alone; skip where the package is missing."""
    server = MariaDb("--innodb-flush-log-at-trx-commit=0")
    yield server
    server.close()

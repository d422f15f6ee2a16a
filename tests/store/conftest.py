"""The store's tests run on both databases: a SQLite file and a MariaDB started for the session."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pymysql
import pytest

from store.apply import Editor
from store.cipher import Cipher
from store.database import discard, open_database
from store.document import parse
from store.migrate import up
from store.objects import Sealing

START_TIMEOUT_S = 60
DIALECTS = ("sqlite", "mariadb")
PEPPER = "pepper of the tests"
VENDORS = {
    "openai": frozenset({"chat_completions", "responses"}),
    "anthropic": frozenset({"messages"}),
    "demo": frozenset({"chat_completions", "responses", "messages", "generate_content"}),
}
DOCUMENT = """
[[model]]
name = "gpt-4.1"
context_tokens = 1000000
[model.price]
input = "2.00"
output = "8.00"
cache_read = "0.50"

[[model]]
name = "claude"
[model.price]
input = "3"
output = "15"

[[group]]
name = "default"

[[group]]
name = "plain"
multiplier = "1.5"
models = ["gpt-4.1"]
entries = ["chat_completions"]

[[channel]]
name = "openai-main"
vendor = "openai"
family = "chat_completions"
base_url = "https://api.openai.com"
keys = ["sk-upstream-1", "sk-upstream-2"]
groups = ["default", "plain"]
models = { "gpt-4.1" = "gpt-4.1-2025-04-14" }

[[channel]]
name = "anthropic-main"
vendor = "anthropic"
family = "messages"
base_url = "https://api.anthropic.com"
keys = ["sk-ant-1"]
models = { claude = "claude-x" }

[[user]]
name = "alice"
balance = "10.00"
password = "correct horse"

[[user]]
name = "bob"

[[key]]
user = "alice"
name = "laptop"
group = "default"
secret = "sk-given-0123456789"

[[key]]
user = "bob"
name = "desk"
group = "plain"
"""


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


@pytest.fixture(params=DIALECTS)
def database_url(request, tmp_path):
    """The url of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/sluice.db"
    return request.getfixturevalue("mariadb").fresh_url()


@pytest.fixture
def empty_database(database_url):
    """A database without any table."""
    db = open_database(database_url)
    yield db
    discard(db)


@pytest.fixture
def database(empty_database):
    """A database with the schema of this code."""
    up(empty_database)
    return empty_database


@pytest.fixture
def cipher():
    return Cipher(["cipher key of the tests"])


@pytest.fixture
def pepper():
    return PEPPER


@pytest.fixture
def sealing(cipher):
    return Sealing(cipher, [PEPPER])


@pytest.fixture
def editor(database, sealing):
    """Makes changes as the actor "tester"."""
    return Editor(database, sealing, VENDORS, "tester", {"UPSTREAM": "sk-from-environment"})


@pytest.fixture
def base_document():
    """The text of a document with two models, groups, channels, users and keys."""
    return DOCUMENT


@pytest.fixture
def read(tmp_path):
    """parse(text) with an environment and a folder of the test's own."""
    return lambda text, **environ: parse(text, environ, Path(tmp_path))


@pytest.fixture
def applied(editor, read, base_document):
    """The outcome of applying the base document."""
    return editor.apply(read(base_document))

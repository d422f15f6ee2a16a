"""Fixtures for tests of the store on a SQLite file and on a MariaDB started for the session.

Mark a module or test `pytest.mark.databases("sqlite")` if its SQL is the same for both, and it
relies on no lock, isolation or collation: it then runs on SQLite alone.
"""

from pathlib import Path

import pytest

from store.admin.apply import Editor
from store.admin.document import parse
from store.admin.objects import Sealing
from store.admin.plan import Upstreams
from store.db.database import discard, open_database, snapshot_read, transaction
from store.values.cipher import Cipher
from tests.support.clock import HandClock
from tests.support.stores import MariaDbStores, contents, fill, sqlite_store
from tests.support.usage_records import BookedJournal
from tests.support.users import add_user

DIALECTS = ("sqlite", "mariadb")
PEPPER = "pepper of the tests"
_APPLIED = {}
VENDORS = {
    "openai": frozenset({"chat_completions", "responses"}),
    "anthropic": frozenset({"messages"}),
    "demo": frozenset({"chat_completions", "responses", "messages", "generate_content"}),
}
UPSTREAMS = Upstreams(VENDORS, {"images": "true or false"})
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


@pytest.fixture(scope="session")
def mariadb_stores(mariadb):
    return MariaDbStores(mariadb)


def pytest_configure(config):
    config.addinivalue_line("markers", "databases(*dialects): those that the test runs on")


def pytest_generate_tests(metafunc):
    if "database_url" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("databases")
        metafunc.parametrize("database_url", marker.args if marker else DIALECTS, indirect=True)


@pytest.fixture
def database_url(request, tmp_path):
    """Return the URL of a database of each kind: empty, or, with the fixture `database`, with the
    schema."""
    path = tmp_path / "sluice.db"
    if "database" not in request.fixturenames:
        sqlite = request.param == "sqlite"
        yield f"sqlite:///{path}" if sqlite else request.getfixturevalue("mariadb").fresh_url()
    elif request.param == "sqlite":
        yield sqlite_store(path)
    else:
        stores = request.getfixturevalue("mariadb_stores")
        url = stores.take()
        yield url
        stores.give_back(url)


@pytest.fixture
def empty_database(database_url):
    """Yield a database without any table."""
    db = open_database(database_url)
    yield db
    discard(db)


@pytest.fixture
def database(database_url):
    """Yield a database with the schema of this code."""
    db = open_database(database_url)
    yield db
    discard(db)


@pytest.fixture
def users(database):
    """Return the ids of two users with empty wallets, by their names."""
    return {name: add_user(database, name) for name in ("alice", "bob")}


@pytest.fixture
def book(database):
    """Return book(records, old offset, new offset, at), which books a batch of a separate
    journal."""
    return BookedJournal(database).book


@pytest.fixture
def clock():
    return HandClock(1_200_000)


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
    """Return an editor that makes changes as the actor "tester", from texts of the command line."""
    environ = {"UPSTREAM": "sk-from-environment"}
    return Editor(database, sealing, UPSTREAMS, "tester", environ)


@pytest.fixture
def remote_editor(database, sealing):
    """Return an editor that makes changes as the actor "tester", from values over HTTP."""
    return Editor(database, sealing, UPSTREAMS, "tester", remote=True)


@pytest.fixture
def base_document():
    """Return the text of a document with two models, groups, channels, users and keys."""
    return DOCUMENT


@pytest.fixture
def read(tmp_path):
    """Return parse(text) with the test's own environment and folder."""
    return lambda text, **environ: parse(text, environ, Path(tmp_path))


@pytest.fixture
def applied(editor, read, base_document, database):
    """Return the outcome of applying the base document, which is done once."""
    if "outcome" not in _APPLIED:
        _APPLIED["outcome"] = editor.apply(read(base_document))
        _APPLIED["rows"] = snapshot_read(database, lambda: contents(database))
    else:
        transaction(database, lambda: fill(database, _APPLIED["rows"]))
    return _APPLIED["outcome"]

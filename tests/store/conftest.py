"""The store's tests run on both databases: a SQLite file and a MariaDB started for the session."""

from pathlib import Path

import pytest

from store.admin.apply import Editor
from store.admin.document import parse
from store.admin.objects import Sealing
from store.admin.plan import Upstreams
from store.db.database import discard, open_database
from store.db.migrate import up
from store.values.cipher import Cipher

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
    return Editor(
        database,
        sealing,
        Upstreams(VENDORS, {"images": "true or false"}),
        "tester",
        {"UPSTREAM": "sk-from-environment"},
    )


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

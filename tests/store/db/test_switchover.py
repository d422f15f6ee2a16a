"""A planned switchover: one server becomes read-only, and the name then leads to another one."""

import time
from concurrent.futures import ThreadPoolExecutor

import peewee
import pytest

from store.db import database, mysql
from store.values.errors import ReadOnly
from tests.support.mariadb import MariaDb
from tests.support.proxy import Switch
from tests.support.stores import select

WAYS = ("read_only", "tx_read_only")  # 1290 and 1792


class Servers:
    """Two servers, each with a table that has the server's name, and a port that leads to one of
    them."""

    def __init__(self):
        self.old, self.new = MariaDb(), MariaDb()
        for server, name in ((self.old, "old"), (self.new, "new")):
            server.run("CREATE DATABASE d")
            server.run("CREATE TABLE d.t (v VARCHAR(20)) ENGINE=InnoDB")
            server.run(f"INSERT INTO d.t VALUES ('{name}')")
            server.run("CREATE USER sluice")
            server.run("GRANT ALL ON d.* TO sluice")
            server.run("CREATE USER boss")
            server.run("GRANT ALL ON *.* TO boss")
        self.name = Switch(self.old.port)

    def url(self, user="sluice"):
        return f"mysql://{user}@127.0.0.1:{self.name.port}/d"

    def again(self):
        self.name.goal = self.old.port
        for server, name in ((self.old, "old"), (self.new, "new")):
            for way in WAYS:
                server.run(f"SET GLOBAL {way} = 0")
            server.run(f"DELETE FROM d.t WHERE v <> '{name}'")

    def close(self):
        self.name.close()
        self.old.close()
        self.new.close()


@pytest.fixture(scope="module")
def both():
    made = Servers()
    yield made
    made.close()


@pytest.fixture
def servers(both):
    both.again()
    return both


@pytest.fixture
def db(servers):
    opened = database.open_database(servers.url())
    yield opened
    database.discard(opened)


class Reader:
    """A thread with a session of its own, which reads on request."""

    def __init__(self, db):
        self._db = db
        self._pool = ThreadPoolExecutor(1)

    def read(self):
        return self._pool.submit(values, self._db).result()


def values(db):
    return [value for (value,) in select(db, "SELECT v FROM t")]


def add(db):
    database.transaction(db, lambda: database.execute(db, "INSERT INTO t VALUES (?)", ("written",)))


def session_id(db):
    return select(db, "SELECT CONNECTION_ID()")[0][0]


@pytest.mark.parametrize("way", WAYS)
def test_the_first_write_after_it_arrives_and_every_session_moves(servers, db, way):
    reader = Reader(db)
    add(db)
    assert reader.read() == values(db) == ["old", "written"]
    servers.old.run(f"SET GLOBAL {way} = 1")
    servers.name.goal = servers.new.port
    if way != "read_only":  # in existing sessions it is a setting of the session
        select(db, "SELECT 1")
        db.execute_sql("SET SESSION TRANSACTION READ ONLY")
    add(db)
    assert servers.new.run("SELECT v FROM d.t") == (("new",), ("written",))
    assert values(db) == reader.read() == ["new", "written"]
    assert servers.old.run("SELECT v FROM d.t") == (("old",), ("written",))


def test_a_server_that_stays_read_only_is_read_from_and_asked_again(servers, db, monkeypatch):
    """The name still leads to the old server."""
    add(db)
    servers.old.run("SET GLOBAL read_only = 1")
    with pytest.raises(ReadOnly, match=r":\d+/d: the server is read-only; make it writable, or"):
        add(db)
    known = session_id(db)
    for _ in range(3):
        with pytest.raises(ReadOnly):
            database.require_writable(db)
        assert values(db) == ["old", "written"] and session_id(db) == known
    servers.old.run("SET GLOBAL read_only = 0")
    with pytest.raises(ReadOnly):  # not checked again yet
        add(db)
    monkeypatch.setattr(mysql, "READ_ONLY_CHECK_S", 0.0)
    add(db)
    assert values(db) == ["old", "written", "written"] and mysql.READ_ONLY_CHECK_S < 5


def test_nothing_is_written_even_by_a_user_who_might(servers):
    """A read-only server still lets its administrators write."""
    servers.old.run("SET GLOBAL read_only = 1")
    db = database.open_database(servers.url("boss"))
    with pytest.raises(ReadOnly):
        add(db)
    assert values(db) == ["old"] and servers.old.run("SELECT v FROM d.t") == (("old",),)
    database.discard(db)


def test_sessions_end_by_their_age(servers, db, monkeypatch):
    assert mysql.SESSION_MAX_S == 300 and mysql.READ_ONLY_CHECK_S == 5
    first = session_id(db)
    assert session_id(db) == first
    servers.name.goal = servers.new.port
    assert values(db) == ["old"]
    monkeypatch.setattr(mysql, "SESSION_MAX_S", 0.0)
    assert values(db) == ["new"]


def test_a_command_that_alters_tables_keeps_its_session(servers, monkeypatch):
    monkeypatch.setattr(mysql, "SESSION_MAX_S", 0.0)
    db = database.open_database(servers.url(), read_timeout_s=3600)
    assert session_id(db) == session_id(db)
    database.discard(db)


def test_a_session_in_a_transaction_is_kept_whatever_its_age(db, monkeypatch):
    monkeypatch.setattr(mysql, "SESSION_MAX_S", 0.0)

    def work():
        database.execute(db, "INSERT INTO t VALUES ('written')")
        assert values(db) == ["old", "written"]
        return session_id(db) == session_id(db)

    assert database.transaction(db, work)


def test_a_session_that_begins_is_cut_with_its_host(servers, monkeypatch):
    monkeypatch.setattr(mysql, "_SESSION", ("SELECT SLEEP(8)",))
    db = database.open_database(servers.url())
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(db.connect)
        began = time.monotonic()
        while not opening.done() and time.monotonic() < began + 5:
            db._cut(db.hosts.current)
            time.sleep(0.05)
        assert isinstance(opening.exception(0), peewee.OperationalError)

"""A store that is away, busy, full or failing while calls run: they are served, and booked when it
is back."""

import contextlib
import socket
import sqlite3
import threading
import time
from decimal import Decimal

import pymysql
import pytest

from store.db.database import discard, execute, open_database, snapshot_read
from tests.support.client import Connection, wait_until
from tests.support.dialects import CHAT, ask, check_refusal, credentials, path_of
from tests.support.gateway import HOST
from tests.support.load import (
    GOOD_PROMPTS,
    MODEL,
    Load,
    Manner,
    balance,
    catch_up_s,
    check_books,
    check_refused_in_all_dialects,
    gateway_before,
    names_in,
    send,
)
from tests.support.proxy import Breakable
from tests.support.upstream import ScriptedUpstream

WORKERS = 2
SHORT_S = 2
# (length of each outage, time between two: the last one used up part of the leases)
OUTAGES = [(SHORT_S, 0.5), pytest.param(60, 20, marks=pytest.mark.long)]
WARM_UP_CALLS = 100
AFTERWARDS_S = 1
DISTURBED_S = 3
CATCH_UP_WITHIN_S = 100  # ten times what is promised
START_PATIENCE_S = 60  # a server that accepts connections and never answers delays the start
SERVED_WITHIN_S = 20
IN_A_ROW = 20
UNKNOWN_SECRET = "sk-test-of-nobody-at-all-0123456789"
UNKNOWN_WITHIN_S = 1.0  # promised; a busy machine may take longer
MACHINE_S = 1.0
BUSY_S = 8  # longer than a writer waits for SQLite's lock
FULL_S = 3
SLOW_SESSION_S = 1.3
BLOCK = b"x" * 65536
IDLE_SECRET = "sk-test-never-used-before-0123456789"
DISABLED_SECRET = "sk-test-of-the-disabled-key-0123456789"
POOR_SECRET = "sk-test-of-the-poor-0123456789"
POOR_CALLS_MAX = 200  # more than the money is enough for
MORE = {
    "user": [{"name": "poor", "balance": "0.05"}],
    "key": [
        {"user": "owner", "name": "idle", "group": "all", "secret": IDLE_SECRET},
        {
            "user": "owner",
            "name": "disabled",
            "group": "all",
            "secret": DISABLED_SECRET,
            "enabled": False,
        },
        {"user": "poor", "name": "main", "group": "all", "secret": POOR_SECRET},
    ],
}
STEADY = Manner(callers=8, prompts=GOOD_PROMPTS, rest_s=0.05, patience_s=30)


class Node:
    """A gateway with two workers on a store that can be broken, and its vendor's log."""

    def __init__(self, url, vendor, folder, database=None):
        self.database, self.url = database, url
        self.vendor_log = folder / "vendor.log"
        settings = {"server.workers": WORKERS, "store.url": url}
        self.gateway = gateway_before(vendor, folder / "node", settings, MORE)

    def check(self, *loads):
        assert "Traceback" not in self.gateway.log()
        return check_books(self.gateway, names_in(self.vendor_log), loads)


@pytest.fixture
def vendor(tmp_path):
    with ScriptedUpstream(log_file=tmp_path / "vendor.log") as made:
        yield made


@pytest.fixture
def node(breakable_mariadb, vendor, tmp_path):
    # A user without the right to write to a read-only server.
    url = breakable_mariadb.fresh_url(user="gateway")
    node = Node(url, vendor, tmp_path, breakable_mariadb)
    with contextlib.closing(node.gateway):
        yield node


@contextlib.contextmanager
def broken(database, how):
    """Take MariaDB away, or make it read-only; restore it at the end."""
    if how == "killed":
        database.kill()
    elif how == "frozen":
        database.freeze()
    else:
        database.run("SET GLOBAL read_only = 1")
    try:
        yield
    finally:
        database.restore()


def spend_until_refused(gateway, tag):
    """Make calls of a user with little money until one is refused; return that answer."""
    for number in range(POOR_CALLS_MAX):
        with Connection(gateway.port) as connection:
            send(connection, CHAT, f"call-{tag}-{number}", secret=POOR_SECRET)
            answer = connection.read()
        if answer.status != 200:
            return answer
    raise AssertionError("the money never ended")


@pytest.mark.parametrize(("seconds", "between_s"), OUTAGES)
def test_calls_are_served_while_mariadb_is_away_and_booked_when_it_is_back(
    node, seconds, between_s
):
    gateway = node.gateway
    gateway.start()
    load = Load(gateway.port, "outage", STEADY)
    for _ in range(4):  # so that the key is known, and a part of the wallet is leased
        gateway.call("POST", path_of(CHAT, MODEL), ask(CHAT, MODEL), credentials(CHAT, POOR_SECRET))
    load.wait_for(WARM_UP_CALLS)
    for how in ("killed", "frozen", "read-only"):
        away_at = time.monotonic()
        with broken(node.database, how):
            time.sleep(0.3)
            if how != "read-only":
                check_refused_in_all_dialects(gateway.port, "E38", UNKNOWN_SECRET)
            if how == "killed" or seconds > SHORT_S:  # with a frozen server each call has to wait
                # The gateway cannot know whether the rest of the money has been spent elsewhere.
                check_refusal(spend_until_refused(gateway, how.replace("-", "")), CHAT, "E38")
            time.sleep(max(0.0, away_at + seconds - time.monotonic()))
            during = [seen for seen in list(load.seen) if seen.began_s >= away_at]
        took_s = catch_up_s(node.url, {seen.name for seen in list(load.seen)}, CATCH_UP_WITHIN_S)
        served = sum(seen.served for seen in during)
        print(f"{how} for {seconds} s: {served} of {len(during)} calls served,", end=" ")
        print(f"all in the books {took_s:.1f} s after it was back")
        assert load.not_served() == [], how
        assert served > seconds
        time.sleep(between_s)
    time.sleep(AFTERWARDS_S)
    load.stop()
    assert load.not_served() == []
    check_refusal(spend_until_refused(gateway, "after"), CHAT, "E18")
    assert gateway.log().count("the store is unavailable") >= 3
    node.check(load)
    assert 0 <= balance(gateway, "poor") < Decimal("0.05")


def test_who_calls_while_a_gateway_reads_a_slow_store_waits_and_is_served(node):
    """Each session takes longer than a call waits for the look-up of its key."""
    gateway = node.gateway
    with Breakable(node.database.port, SLOW_SESSION_S) as network:
        name = node.url.rpartition("/")[2]
        url = f"mysql://gateway@{HOST}:{network.port}/{name}"
        gateway.launch("--set", f"store.url={url}")
        assert wait_until(lambda: listens(gateway.port), 10)
        path, headers = path_of(CHAT, MODEL), credentials(CHAT)
        calls = [gateway.call("POST", path, ask(CHAT, MODEL), headers)[0] for _ in range(4)]
        assert calls == [200] * 4


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def test_keys_and_money_are_in_memory_before_they_are_used(node):
    """Even keys whose first call since the start comes while MariaDB is frozen are served, and by
    workers that their user has not reached before."""
    gateway = node.gateway
    gateway.start()
    gateway.call("POST", path_of(CHAT, MODEL), ask(CHAT, MODEL), credentials(CHAT))
    assert wait_until(lambda: len(leases_of(node, "owner")) == WORKERS, 20)
    assert wait_until(lambda: gateway.log().count("keys read into memory") == WORKERS, 20)
    with broken(node.database, "frozen"):
        for _ in range(IN_A_ROW):
            path, headers = path_of(CHAT, MODEL), credentials(CHAT, IDLE_SECRET)
            began_s = time.monotonic()
            assert gateway.call("POST", path, ask(CHAT, MODEL), headers)[0] == 200
            assert time.monotonic() < began_s + MACHINE_S
        check_refused_in_all_dialects(gateway.port, "E04", DISABLED_SECRET)
        began_s = time.monotonic()
        check_refused_in_all_dialects(gateway.port, "E38", UNKNOWN_SECRET)
        assert time.monotonic() < began_s + UNKNOWN_WITHIN_S + MACHINE_S
    node.check()


def leases_of(node, user):
    """Return the leases on a user's wallet."""
    query = (
        'SELECT "amount" FROM "leases" JOIN "users" ON "id" = "account"'
        ' WHERE "name" = ? AND "amount" > 0'
    )
    db = open_database(node.url)
    try:
        return snapshot_read(db, lambda: execute(db, query, (user,)).fetchall())
    finally:
        discard(db)


@pytest.mark.parametrize("how", ["killed", pytest.param("frozen", marks=pytest.mark.long)])
def test_a_gateway_killed_in_an_outage_starts_without_its_database_and_loses_nothing(node, how):
    gateway = node.gateway
    gateway.start()
    load = Load(gateway.port, "first", STEADY)
    load.wait_for(20)
    with broken(node.database, how):
        time.sleep(1)
        gateway.kill()
        load.stop()
        gateway.launch()
        assert wait_until(lambda: readiness(gateway) == 503, 10)
        check_refused_in_all_dialects(gateway.port, "E38", patience_s=START_PATIENCE_S)
        assert readiness(gateway) == 503
        pids = set(gateway.pids())
    assert wait_until(gateway.ready, 20)
    assert set(gateway.pids()) == pids, "it was restarted"
    print(f"{how}: all calls are served {all_served_s(gateway):.1f} s after it was back and ready")
    again = Load(gateway.port, "again", STEADY)
    again.wait_for(20)
    again.stop()
    assert again.not_served() == []
    records = node.check(load, again)
    assert any(record["outcome"] == "gateway_lost" for record in records)


def all_served_s(gateway):
    """Return the seconds until every worker serves: a worker retries an unavailable store once a
    second."""
    began, in_a_row = time.monotonic(), 0
    while in_a_row < IN_A_ROW:
        status, _, _ = gateway.call("POST", path_of(CHAT, MODEL), ask(CHAT, MODEL), credentials())
        assert status in (200, 503)
        in_a_row = in_a_row + 1 if status == 200 else 0
        assert time.monotonic() < began + SERVED_WITHIN_S
        time.sleep(0.02)
    return time.monotonic() - began


def readiness(gateway):
    """Return the status of /readyz; None if nobody answers."""
    with contextlib.suppress(OSError):
        return gateway.call("GET", "/readyz", port=gateway.ops_port)[0]
    return None


def lock_the_other_way_round(node, rounds):
    """Lock the rows that the writers lock, in the opposite order, so that somebody becomes the
    deadlock's victim."""
    port, name = node.database.port, node.url.rpartition("/")[2]
    with contextlib.closing(
        pymysql.connect(host=HOST, port=port, user="root", database=name)
    ) as connection:
        cursor = connection.cursor()
        for _ in rounds:
            with contextlib.suppress(pymysql.err.OperationalError):
                for table in ("usage_by_channel", "usage_by_key", "ledger", "wallets"):
                    cursor.execute(f"SELECT * FROM {table} FOR UPDATE")
                    time.sleep(0.02)
            connection.rollback()


def cut_connections(node, rounds):
    """Cut busy connections of the gateway, some of them in the middle of a COMMIT."""
    query = "SELECT id FROM information_schema.processlist WHERE user = %s AND command <> %s"
    with contextlib.closing(
        pymysql.connect(host=HOST, port=node.database.port, user="root")
    ) as connection:
        cursor = connection.cursor()
        for _ in rounds:
            cursor.execute(query, ("gateway", "Sleep"))
            for (connection_id,) in cursor.fetchall():
                with contextlib.suppress(pymysql.err.OperationalError):
                    cursor.execute(f"KILL HARD CONNECTION {connection_id}")


@pytest.mark.long
def test_books_stay_exact_while_somebody_disturbs_every_transaction(node):
    gateway = node.gateway
    gateway.start()
    load = Load(gateway.port, "disturbed", STEADY)
    load.wait_for(20)
    before = failures(node.database)
    for disturb in (lock_the_other_way_round, cut_connections):
        over = threading.Event()
        rounds = iter(lambda over=over: over.wait(0.005), True)
        thread = threading.Thread(target=disturb, args=(node, rounds))
        thread.start()
        time.sleep(DISTURBED_S)
        over.set()
        thread.join()
    load.stop()
    after = failures(node.database)
    print(", ".join(f"{name}: {after[name] - before[name]}" for name in after))
    assert all(after[name] > before[name] for name in after)
    assert load.not_served() == []
    node.check(load)


def failures(database):
    """Return the number of deadlocks and cut connections so far."""
    query = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_deadlocks', 'Aborted_clients')"
    return {name: int(count) for name, count in database.run(query)}


# ---- SQLite --------------------------------------------------------------------------------------


@contextlib.contextmanager
def sqlite_under_load(disk, vendor, folder):
    """Yield the store's file while calls run; check afterwards that all of them are booked."""
    file = disk / "sluice.db"
    node = Node(f"sqlite:///{file}", vendor, folder)
    with contextlib.closing(node.gateway):
        node.gateway.start()
        load = Load(node.gateway.port, "sqlite", STEADY)
        load.wait_for(40)
        yield node.gateway, file
        names = {seen.name for seen in list(load.seen)}
        took_s = catch_up_s(node.url, names, CATCH_UP_WITHIN_S)
        load.stop()
        print(f"{len(names)} calls were in the books {took_s:.1f} s later")
        assert load.not_served() == []
        node.check(load)


@pytest.mark.long
def test_calls_are_served_while_another_process_holds_sqlite(vendor, tmp_path):
    with (
        sqlite_under_load(tmp_path, vendor, tmp_path) as (_, file),
        contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        count = "SELECT COUNT(*) FROM usage_records"
        before = other.execute(count).fetchone()
        time.sleep(BUSY_S)
        assert other.execute(count).fetchone() == before, "somebody wrote"
        other.execute("ROLLBACK")


def test_calls_are_served_while_the_disk_of_sqlite_is_full(small_disk, vendor, tmp_path):
    with sqlite_under_load(small_disk, vendor, tmp_path) as (gateway, file):
        filler = fill(small_disk)
        words = f"the store is unavailable: {file}: database or disk is full"
        assert wait_until(lambda: words in gateway.log(), 30), "the disk did not get full"
        time.sleep(FULL_S)
        filler.unlink()


def fill(folder):
    """Fill a folder's file system to the last page; return the file that does it."""
    path = folder / "filler"
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as filler:
        while True:
            filler.write(BLOCK)
    return path

"""The one host that all write to: how it is lost, moved and followed."""

import itertools
import threading
import time
from pathlib import Path

import pytest

from store.db import cluster, database, mysql
from store.values.errors import OutcomeUnknown, Refused, StoreUnavailable
from tests.support import leash
from tests.support.ports import free_port
from tests.support.stores import select

FOLLOW_S = 2.0
GONE_S = 10.0


class Gateway:
    """A separate process from the store's view: it watches the hosts, and adds rows
    continuously."""

    def __init__(self, url):
        self.db = database.open_watched(url, 5, 20)
        self.acknowledged, self.unknown, self.times = [], [], []
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def host(self):
        return self.db.hosts.current.name

    def _run(self):
        number = 0
        while not self.stopped.wait(0.01):
            number += 1
            name = f"{id(self)} {number}"
            try:
                database.transaction(self.db, lambda name=name: add(self.db, name), marked=True)
                self.acknowledged.append(name)
                self.times.append(time.monotonic())
            except OutcomeUnknown:
                self.unknown.append(name)
            except StoreUnavailable:
                pass
        database.discard(self.db)

    def longest_wait(self):
        times = self.times
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def stop(self):
        self.stopped.set()
        self._thread.join(60)


def add(db, name):
    values = {"name": [name], "seen_ms": [0]}
    database.insert_columns(db, "nodes", values)


def wait_until(true, seconds):
    began = time.monotonic()
    while not true():
        assert time.monotonic() < began + seconds, f"not after {seconds} s"
        time.sleep(0.05)
    return time.monotonic() - began


@pytest.fixture
def gateways(cluster_store):
    both = [Gateway(cluster_store) for _ in range(2)]
    wait_until(lambda: all(len(one.acknowledged) > 50 for one in both), 10)
    yield both
    for one in both:
        one.stop()


def verify_rows(galera, gateways, name):
    """Check that no acknowledged row is missing and no refused row exists."""
    for one in gateways:
        one.stop()
    db = database.open_database(galera.url_of(name))
    rows = {row for (row,) in select(db, "SELECT name FROM nodes")}
    database.discard(db)
    acknowledged = {row for one in gateways for row in one.acknowledged}
    unknown = {row for one in gateways for row in one.unknown}
    assert acknowledged <= rows <= acknowledged | unknown
    return len(acknowledged), len(unknown)


def test_a_host_that_is_killed_or_freezes_is_left_by_all(galera, cluster_store, gateways):
    name = cluster_store.rpartition("/")[2]
    first, second, third = galera.nodes
    assert {one.host for one in gateways} == {first.place}
    first.kill()
    took = wait_until(lambda: {one.host for one in gateways} == {second.place}, GONE_S)
    written = len(gateways[0].acknowledged)
    wait_until(lambda: len(gateways[0].acknowledged) > written + 50, GONE_S)
    stalls = [round(one.longest_wait(), 1) for one in gateways]
    print(f"\nkill -9: followed after {took:.1f} s, longest without a write {stalls} s")
    assert max(stalls) <= GONE_S
    first.start()  # it is back, but nobody returns to it
    time.sleep(FOLLOW_S)
    assert {one.host for one in gateways} == {second.place}
    second.freeze()
    took = wait_until(lambda: {one.host for one in gateways} == {third.place}, GONE_S)
    written = len(gateways[1].acknowledged)
    wait_until(lambda: len(gateways[1].acknowledged) > written + 50, 2 * GONE_S)
    stalls = [round(one.longest_wait(), 1) for one in gateways]
    print(f"SIGSTOP: followed after {took:.1f} s, longest without a write {stalls} s")
    second.thaw()
    print("acknowledged, unknown:", verify_rows(galera, gateways, name))


def test_the_row_is_followed_within_two_seconds(galera, gateways):
    db = gateways[0].db
    target = db.hosts.all[2]

    def move():
        row = mysql.read_row(db.connection())
        assert mysql.move(db.connection(), target, row.epoch)

    database.transaction(db, move)
    took = wait_until(lambda: {one.host for one in gateways} == {target.name}, FOLLOW_S)
    print(f"\nfollowed after {took:.1f} s")
    assert all(one.longest_wait() < 1 for one in gateways)


def test_without_a_majority_all_wait_for_a_human(galera, cluster_store, gateways):
    name = cluster_store.rpartition("/")[2]
    first, second, third = galera.nodes
    first.kill()
    second.kill()
    third.wait_for_members(1)
    time.sleep(3)
    written = [len(one.acknowledged) for one in gateways]
    time.sleep(2)
    assert written == [len(one.acknowledged) for one in gateways]
    third.bootstrap()
    took = wait_until(
        lambda: all(len(one.acknowledged) > max(written) + 20 for one in gateways), GONE_S
    )
    print(f"\nwritten again {took:.1f} s after the bootstrap")
    assert {one.host for one in gateways} == {third.place}
    print("acknowledged, unknown:", verify_rows(galera, gateways, name))


def test_what_people_see_and_choose(galera, cluster_store):
    first, second, third = galera.nodes
    db = database.open_database(cluster_store)
    second.kill()
    third.wait_for_members(2)
    rows = {
        row["host"]: row
        for row in [cluster.to_public(state, first.place) for state in cluster.states(db)]
    }
    sizes = [rows[node.place]["cluster_size"] for node in galera.nodes]
    assert sizes == [2, None, 2] and rows[first.place]["writes"]
    assert "refused" in rows[second.place]["state"] and rows[third.place]["state"] == "primary"
    with pytest.raises(Refused, match="cannot be written to"):
        cluster.move_to(db, second.place, "tester")
    with pytest.raises(Refused, match="is not a host of"):
        cluster.move_to(db, "elsewhere:3306", "tester")
    assert cluster.move_to(db, third.place, "tester") == first.place
    assert cluster.writing_host(db) == third.place and cluster.alters_in_total_order(db)
    database.discard(db)


def test_a_proxy_with_one_host_leads_to_another_one(galera, cluster_store, tmp_path):
    """Uses conf/cluster/haproxy.cfg with the ports of this cluster."""
    port = free_port()
    text = Path("conf/cluster/haproxy.cfg").read_text().replace(":3307", f":{port}")
    for number, node in enumerate(galera.nodes, 1):
        node.run("CREATE USER IF NOT EXISTS haproxy")
        text = text.replace(f"db{number}.example:3306", node.place)
    (tmp_path / "haproxy.cfg").write_text(text)
    proxy = leash.Popen(["/usr/sbin/haproxy", "-f", str(tmp_path / "haproxy.cfg")])
    try:
        one = Gateway(f"mysql://root@127.0.0.1:{port}/{cluster_store.rpartition('/')[2]}")
        wait_until(lambda: len(one.acknowledged) > 50, 30)
        galera.nodes[0].kill()
        time.sleep(1)
        written = len(one.acknowledged)
        wait_until(lambda: len(one.acknowledged) > written + 50, 2 * GONE_S)
        print(f"\nlongest without a write: {one.longest_wait():.1f} s")
        verify_rows(galera, [one], cluster_store.rpartition("/")[2])
    finally:
        proxy.terminate()
        proxy.wait(10)

"""A Galera cluster for tests: three private nodes on loopback, each with its folder and ports.

    cluster = Galera()                     # three nodes, all primary and synced
    cluster.url()                          # mysql://root@h1,h2,h3/test_1, a fresh database
    cluster.nodes[0].kill()                # SIGKILL; the others go on after about 4 s
    cluster.nodes[0].freeze(), .thaw()     # SIGSTOP, SIGCONT; the others evict it after 3 to 6 s
    cluster.nodes[0].start()               # comes back, by IST; waits until it is synced
    cluster.nodes[0].stop()                # an orderly shutdown, as for a rolling upgrade
    cluster.nodes[2].bootstrap()           # makes the last node of a lost majority primary
    cluster.restore()                      # all three run and are synced, whatever a test did

Each node takes about 150 MB of memory and 200 MB of disk. The nodes start in about 15 s.
"""

import configparser
import contextlib
import re
import shutil
import subprocess
import time
from pathlib import Path

import pymysql
import pytest

from tests.support.mariadb import START_TIMEOUT_S, MariaDb
from tests.support.ports import HOST, free_port
from tests.support.programs import missing

PROVIDER = "/usr/lib/galera/libgalera_smm.so"
NODES = 3
ROOT = Path(__file__).resolve().parents[2]
SYNC_TIMEOUT_S = 60


def sample():
    """The settings of conf/cluster/my.cnf."""
    parser = configparser.ConfigParser(inline_comment_prefixes=("#",))
    parser.read(ROOT / "conf/cluster/my.cnf")
    return dict(parser["mariadbd"])


class GaleraNode(MariaDb):
    """A node. `port`: for clients; `place`: its name in `store.url`; `replication`: the address
    for the group."""

    def __init__(self, replication, group, first):
        self.replication = replication
        replaced = {
            "bind_address": HOST,
            "innodb_buffer_pool_size": "64M",
            "innodb_log_file_size": "96M",
            "innodb_flush_log_at_trx_commit": "0",  # a node recovers what it loses from the others
            "wsrep_cluster_name": "sluice-tests",
            "wsrep_cluster_address": f"gcomm://{','.join(f'{HOST}:{port}' for port in group)}",
            "wsrep_node_address": f"{HOST}:{replication}",
            "wsrep_node_name": f"db{group.index(replication) + 1}",
            "wsrep_sst_receive_address": f"{HOST}:{free_port()}",
            "wsrep_provider_options": f"gmcast.listen_addr=tcp://{HOST}:{replication};"
            f"ist.recv_addr={HOST}:{free_port()};"
            + sample()["wsrep_provider_options"].strip('"').replace("=1G", "=64M"),
        }
        super().__init__(
            *(f"--{name}={value}" for name, value in {**sample(), **replaced}.items()),
            first=("--wsrep-new-cluster",) if first else (),
        )

    def _command_line(self, as_user, options):
        incoming = f"--wsrep-node-incoming-address={HOST}:{self.port}"
        return [*super()._command_line(as_user, options), incoming]

    @property
    def place(self):
        return f"{HOST}:{self.port}"

    def start(self, *options):
        """Start the node and wait until it is primary and synced. After a kill it first recovers
        its position, as the package's systemd unit does; otherwise the whole database would be
        copied."""
        if "seqno:   -1" in self._state():
            options = (*options, *self._recovered())
        super().start(*options)
        self.wait_synced()

    def _state(self):
        path = Path(self._folder) / "data" / "grastate.dat"
        return path.read_text() if path.exists() else ""

    def _recovered(self):
        command = [*self._command, "--wsrep-recover", "--disable-log-error"]
        done = subprocess.run(command, check=False, capture_output=True, timeout=START_TIMEOUT_S)
        position = re.search(r"Recovered position:? *([0-9a-f-]{36}:-?\d+)", done.stderr.decode())
        return [f"--wsrep-start-position={position[1]}"] if position else []

    def start_alone(self):
        """Start the node as the first of a new cluster, when all others have ended."""
        state = Path(self._folder) / "data" / "grastate.dat"
        state.write_text(state.read_text().replace("to_bootstrap: 0", "to_bootstrap: 1"))
        self.start("--wsrep-new-cluster")

    def stop(self):
        """Shut down in order, as for an upgrade."""
        self.process.terminate()
        self.process.wait(START_TIMEOUT_S)

    def bootstrap(self):
        """Make this node the primary component, as an operator does when the majority is lost."""
        self.run("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'")

    def status(self, name):
        """Return the value of a status variable; `name` is without `wsrep_`."""
        rows = self.run(f"SHOW GLOBAL STATUS LIKE 'wsrep_{name}'")
        return rows[0][1] if rows else None

    def time_s(self):
        """Return the time of the node's clock."""
        [(time_s,)] = self.run("SELECT UNIX_TIMESTAMP()")
        return time_s

    def wait_synced(self):
        """Wait until the node is primary and has everything that the others have."""
        self._wait_for("cluster_status", "Primary")
        self._wait_for("local_state_comment", "Synced")

    def wait_for_members(self, count):
        """Wait until the node sees this many members in its group, itself included."""
        self._wait_for("cluster_size", str(count))

    def _wait_for(self, name, value):
        deadline = time.monotonic() + SYNC_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(pymysql.err.MySQLError):
                if self.status(name) == value:
                    return
            time.sleep(0.1)
        pytest.fail(f"wsrep_{name} of the node at {self.place} did not become {value}")


class Galera:
    """Three nodes; `nodes[0]` is the first one in `url()`."""

    def __init__(self):
        if not Path(PROVIDER).exists() or not shutil.which("rsync"):
            missing("Galera is not installed", "galera-4 rsync")
        group = [free_port() for _ in range(NODES)]
        self.nodes = []
        try:
            for place, port in enumerate(group):
                self.nodes.append(GaleraNode(port, group, first=place == 0))
        except BaseException:
            self.close()
            raise

    def url(self, options=""):
        """Return the URL of a fresh database on all nodes; `options`: its query string."""
        _, _, name = self.nodes[0].fresh_url().rpartition("/")
        return self.url_of(name) + (f"?{options}" if options else "")

    def url_of(self, name, nodes=None):
        """Return the URL of a database on these nodes, by default on all."""
        return f"mysql://root@{','.join(node.place for node in nodes or self.nodes)}/{name}"

    def restore(self):
        """Make all nodes run and be synced again."""
        running = [node for node in self.nodes if node.process.poll() is None]
        for node in running:
            node.thaw()
        if running:
            running[0].wait_for_members(len(running))
            if running[0].status("cluster_status") != "Primary":
                running[0].bootstrap()
        else:
            self.nodes[0].start_alone()
        for node in self.nodes:
            if node.process.poll() is not None:
                node.start()
        for node in self.nodes:
            node.wait_synced()
        # A frozen node does not notice at once that the others have evicted it.
        deadline = time.monotonic() + SYNC_TIMEOUT_S
        while len({node.status("cluster_conf_id") for node in self.nodes}) > 1:
            assert time.monotonic() < deadline, "the nodes do not agree on their cluster"
            time.sleep(0.1)
        for node in self.nodes:
            node.wait_for_members(NODES)
            node.wait_synced()

    def close(self):
        for node in self.nodes:
            node.close()

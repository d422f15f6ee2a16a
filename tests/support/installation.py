"""The whole installation of docs/cluster.md on loopback, with the files of conf/cluster.

Three database nodes, Redis, two gateways with two workers each behind nginx, and callers of each
kind at a steady rate. Only ports, paths and addresses of the samples are replaced.
"""

import contextlib
import os
import re
import time
from pathlib import Path

from store.db.database import discard, execute, open_database, snapshot_read
from tests.support.client import wait_until
from tests.support.clock import FakeClock
from tests.support.documents import CREDIT, channel, document
from tests.support.gateway import HOST, ROOT, Gateway
from tests.support.load import names_in
from tests.support.nginx import Nginx, product_configuration, sample
from tests.support.ports import free_port
from tests.support.redis import RedisServer
from tests.support.steady import Pace, Steady
from tests.support.upstream import ScriptedUpstream
from tests.support.wallets import joined, owners, secret_of

RPM, TPM, SLOTS = 30, 900, 4
GAP_MS, CHUNKS = 250, 16
POOR_BALANCE = "0.02"
PASSWORD = "CHANGE-ME"  # as in the samples
# The callers and their rates: in total 30 calls a second and 50 open streams.
PACES = {
    "rich": Pace(20, 42, GAP_MS, CHUNKS, rest_s=0.5),
    "rated": Pace(4, 0, GAP_MS, CHUNKS),
    "metered": Pace(3, 0, GAP_MS, CHUNKS),
    "narrow": Pace(0, 8, GAP_MS, CHUNKS, rest_s=0.5),
    "poor": Pace(3, 0, GAP_MS, CHUNKS),
}
LIMITS = {"rated": {"rpm": RPM}, "metered": {"tpm": TPM}, "narrow": {"concurrency": SLOTS}}
BOOKED_WITHIN_S = 60
DRAIN_WITHIN_S = 60
COVERED_WITHIN_S = 20
_LEASES = """SELECT u."name", COUNT(*) FROM "leases" l
  JOIN "journals" j ON j."id" = l."journal_id" AND j."finished_ms" IS NULL
  JOIN "users" u ON u."id" = l."account" WHERE l."amount" > 0 GROUP BY 1"""
_SQL = re.compile(r"```sql\n(.*?)```", re.DOTALL)


class Installation:
    """All processes, running. `load` makes the callers call, `settle` waits until everything is
    booked. `more`: additions to the document, which workers read at their start."""

    def __init__(self, folder: Path, galera, more: dict | None = None) -> None:
        self.galera = galera
        with contextlib.ExitStack() as stack:
            self.vendor_log = folder / "vendor.log"
            self.vendor = stack.enter_context(ScriptedUpstream(log_file=self.vendor_log))
            self.redis = stack.enter_context(self._redis(folder))
            self.clock = FakeClock()
            self.gateways = self._gateways(folder / "node")
            for gateway in self.gateways:
                stack.callback(gateway.close)
            self.gateways[0].apply(joined(self._document(), more or {}))
            self.port = free_port()
            self.nginx = self._nginx(folder / "nginx")
            stack.callback(self.nginx.close)
            for gateway in self.gateways:
                gateway.start()
            self.close = stack.pop_all().close

    def _redis(self, folder: Path) -> RedisServer:
        file = folder / "redis.conf"
        file.write_text(
            sample("conf/cluster/redis.conf", {r"(?m)^bind .*": "", r"(?m)^port .*": ""})
        )
        return RedisServer(file, PASSWORD)

    def _gateways(self, folder: Path) -> list[Gateway]:
        """Return gateways with conf/cluster/gateway.toml, on a database created as the page
        says."""
        [text] = _SQL.findall((ROOT / "docs/cluster.md").read_text())
        for earlier in ("DATABASE IF EXISTS sluice", "USER IF EXISTS 'sluice'@'%'"):
            self.galera.nodes[0].run(f"DROP {earlier}")
        for statement in filter(str.strip, text.replace("10.0.0.%", "%").split(";")):
            self.galera.nodes[0].run(statement)
        hosts = ",".join(node.place for node in self.galera.nodes)
        self.database = self.galera.url_of("sluice")
        url = f"mysql://sluice:PASSWORD@{hosts}/sluice"
        first = Gateway(folder, {"store.url": url})
        replaced = {
            r"10\.0\.0\.\d+": HOST,
            r"(?m)^port = 8000$": f"port = {first.port}",
            r"(?m)^port = 8001$": f"port = {free_port()}",
            r"(?m)^port = 9000$": f"port = {first.ops_port}",
            r"db1\.example:3306,db2\.example:3306,db3\.example:3306": hosts,
            r"redis\.example:6379": f"{HOST}:{self.redis.port}",
        }
        first.config.write_text(sample("conf/cluster/gateway.toml", replaced))
        os.environ["SLUICE_REDIS_PASSWORD"] = PASSWORD
        return [first, first.sibling("second", {"hub.port": free_port()})]

    def _document(self) -> dict:
        content = document(
            ["tea"], [channel("c", "chat_completions", self.vendor.url, {"tea": "t"})]
        )
        people = [owners([who], CREDIT, **LIMITS.get(who, {})) for who in PACES if who != "poor"]
        return joined(content, *people, owners(["poor"], "0"))

    def _nginx(self, folder: Path) -> Nginx:
        folder.mkdir()
        first, second = self.gateways
        replaced = {
            r"gateway1\.example:8000": f"{HOST}:{first.port}",
            r"gateway2\.example:8000": f"{HOST}:{second.port}",
            r"gateway\d\.example:8001": f"{HOST}:{free_port()}",
        }
        upstreams = sample("conf/cluster/nginx.conf", replaced)
        text = product_configuration(folder, self.port, self.gateways, upstreams)
        return Nginx(folder, self.port, text)

    # ---- the database ----------------------------------------------------------------------------

    def read(self, query, *parameters):
        """Return the rows of a query, read in a session of its own from the writing host."""
        db = open_database(self.database)
        try:
            return snapshot_read(db, lambda: execute(db, query, parameters).fetchall())
        finally:
            discard(db)

    def writer(self):
        """Return the node that all write to."""
        [(host,)] = self.read('SELECT "host" FROM "writing_host"')
        return next(node for node in self.galera.nodes if node.place == host)

    def others(self):
        writer = self.writer()
        return [node for node in self.galera.nodes if node is not writer]

    def write_to(self, node):
        self.gateways[0].run("store", "writer", node.place)

    # ---- load ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def load(self, tag):
        """Let callers of each kind call while the block runs; yield what each saw, by its name."""
        self.gateways[0].run(
            *("wallet", "credit", "--user", "poor", "--amount", POOR_BALANCE),
            *("--id", f"poor-{tag}", "--reason", "test"),
        )
        with contextlib.ExitStack() as stack:
            callers = {
                who: Steady(self.port, secret_of(who), pace, f"{tag}{who}")
                for who, pace in PACES.items()
            }
            for caller in callers.values():
                stack.enter_context(caller)
            yield {who: caller.seen for who, caller in callers.items()}

    def wait_for_cover(self):
        """Wait until each worker has a lease on the wallet of each caller with money."""
        workers = sum(len(gateway.worker_pids()) for gateway in self.gateways)
        goal = {(who, workers) for who in PACES if who != "poor"}
        covered = wait_until(lambda: goal <= set(self.read(_LEASES)), COVERED_WITHIN_S)
        assert covered, self.read(_LEASES)

    def settle(self, tag):
        """Wait until each call of a load that the vendor saw is booked. Return the records by
        name, and how long that took."""
        began_s = time.monotonic()
        names = {name for name in names_in(self.vendor_log) if name.startswith(f"call-{tag}")}
        while True:
            rows = self.records(tag)
            missing = names - rows.keys()
            if not missing or time.monotonic() > began_s + BOOKED_WITHIN_S:
                assert not missing, f"{len(missing)} calls that the vendor saw have no record"
                return rows, time.monotonic() - began_s
            time.sleep(0.5)

    def records(self, tag):
        """Return a load's records by name: (id, outcome, status, node, started, recorded,
        tokens)."""
        rows = {}
        query = (
            'SELECT "client_request_id", "id", "outcome", "status", "node", "started_ms",'
            ' "recorded_ms", "input_tokens" + "output_tokens" FROM "usage_records"'
            ' WHERE "client_request_id" LIKE ? ORDER BY "recorded_ms"'
        )
        for name, *row in self.read(query, f"call-{tag}%"):
            rows.setdefault(name, []).append(tuple(row))
        return rows

    def lowest_balance(self):
        [(lowest,)] = self.read('SELECT MIN("balance") FROM "wallets"')
        return int(lowest)

    def restart(self, gateway, *flags, **environment):
        """Restart a gateway in order, so that no caller notices."""
        assert gateway.stop(DRAIN_WITHIN_S) == 0
        gateway.env = environment
        gateway.start(*flags, wait_s=DRAIN_WITHIN_S)

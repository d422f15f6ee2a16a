"""A planned switchover of MariaDB under a gateway: no process goes on with the old server."""

import json
import subprocess
import time

import pytest

from tests.support.client import Connection, wait_until
from tests.support.dialects import ALL, CHAT
from tests.support.gateway import HOST
from tests.support.load import gateway_before, send
from tests.support.mariadb import MariaDb
from tests.support.proxy import Switch
from tests.support.upstream import ScriptedUpstream

WITHIN_S = 60  # ten seconds until a node reports again, and a loaded machine
READ_ONLY_S = 3
SECRETS = {name: f"sk-test-of-{name}-0123456789" for name in ("first", "second")}
MORE = {
    "key": [
        {"user": "owner", "name": name, "group": "all", "secret": secret}
        for name, secret in SECRETS.items()
    ]
}


class Servers:
    """Two servers, of which the second becomes a copy of the first; `name` is the store's
    address."""

    def __init__(self):
        self.old, self.new = MariaDb(), MariaDb()
        self.name = Switch(self.old.port)
        for server in (self.old, self.new):
            server.run("CREATE DATABASE d CHARACTER SET utf8mb4")
            server.run("CREATE USER sluice")
            server.run("GRANT ALL ON d.* TO sluice")
        self.url = f"mysql://sluice@{HOST}:{self.name.port}/d"

    def copy(self):
        """Copy the read-only old server's data to the new one."""
        login = ["--no-defaults", f"--host={HOST}", "--user=root"]
        dump = ["mariadb-dump", *login, f"--port={self.old.port}", "--single-transaction", "d"]
        text = subprocess.run(dump, check=True, capture_output=True).stdout
        client = ["mariadb", *login, f"--port={self.new.port}", "d"]
        subprocess.run(client, check=True, input=text)

    def close(self):
        self.name.close()
        self.old.close()
        self.new.close()


@pytest.fixture
def servers():
    made = Servers()
    yield made
    made.close()


@pytest.fixture
def node(servers, tmp_path):
    with ScriptedUpstream() as vendor:
        settings = {"server.workers": 2, "store.url": servers.url}
        gateway = gateway_before(vendor, tmp_path / "node", settings, MORE)
        try:
            gateway.start()
            yield gateway
        finally:
            gateway.close()


def status(gateway, name, secret):
    with Connection(gateway.port) as connection:
        send(connection, CHAT, f"call-{name}-1", secret=secret)
        return connection.read().status


@pytest.mark.long
def test_what_is_disabled_on_the_new_server_is_disabled_for_every_node(node, servers):
    for name, secret in SECRETS.items():
        assert status(node, name, secret) == 200
    assert wait_until(lambda: len(node.usage()) == len(SECRETS), WITHIN_S)
    servers.old.run("SET GLOBAL read_only = 1")
    written = servers.old.run("SELECT COUNT(*), MAX(recorded_ms) FROM d.usage_records")
    servers.copy()
    time.sleep(READ_ONLY_S)
    servers.name.goal = servers.new.port
    key_ids = {key["name"]: key["id"] for key in json.loads(node.run("key", "list", "--json"))}
    node.run("key", "disable", key_ids["first"])
    assert wait_until(lambda: status(node, "first", SECRETS["first"]) == 401, WITHIN_S)
    assert status(node, "second", SECRETS["second"]) == 200
    for family in ALL:
        node.run("channel", "disable", f"only-{family}")
    assert wait_until(lambda: status(node, "second", SECRETS["second"]) == 404, WITHIN_S)
    assert wait_until(lambda: node.run("usage", "verify") and node.ready(), WITHIN_S)
    assert node.stop() == 0
    node.run("books", "verify")
    assert written == servers.old.run("SELECT COUNT(*), MAX(recorded_ms) FROM d.usage_records")
    assert "Traceback" not in node.log()

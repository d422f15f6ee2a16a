"""A disk that damages a journal: the line is put aside and told, everything behind it is booked."""

import contextlib
import json
import sqlite3

import pytest

from tests.support.client import Connection, wait_until
from tests.support.dialects import CHAT
from tests.support.load import gateway_before, send
from tests.support.upstream import ScriptedUpstream

CALLS = 6
LINE_BEGIN = b'["C","%b"'
CHARGE = b'["wallet",'


@pytest.fixture
def gateway(tmp_path):
    with ScriptedUpstream(log_file=tmp_path / "vendor.log") as vendor:
        made = gateway_before(vendor, tmp_path / "node")
        try:
            made.start()
            yield made
        finally:
            made.close()


def call(gateway):
    with Connection(gateway.port) as connection:
        send(connection, CHAT, "call-damaged-0")
        return connection.read().headers["x-request-id"]


def test_one_damaged_line_costs_one_record(gateway):
    call(gateway)  # so that its key is known and something of its wallet is lent
    with contextlib.closing(
        sqlite3.connect(gateway.folder / "sluice.db", isolation_level=None)
    ) as other:
        other.execute("BEGIN IMMEDIATE")  # nothing is booked from now on
        called = [call(gateway) for _ in range(CALLS)]
        gateway.kill()
        other.execute("ROLLBACK")
    damage(gateway.folder / "journal", called[2])
    gateway.start()
    assert wait_until(lambda: set(called) <= {one["id"] for one in gateway.usage()}, 20)
    outcomes = {one["id"]: one["outcome"] for one in gateway.usage()}
    assert [outcomes[call_id] for call_id in called] == [
        "gateway_lost" if call_id == called[2] else "ok" for call_id in called
    ]
    [parked] = (gateway.folder / "journal" / "parked.ndjson").read_text().splitlines()
    assert called[2] in json.loads(parked)["record"]
    assert json.loads(gateway.run("status", "--json"))["parked"] == 1
    assert "is damaged" in gateway.log()
    gateway.run("books", "verify")
    gateway.run("usage", "verify")


def damage(folder, call_id):
    """Turns a digit of the charge in a call's last line into another."""
    [path] = (path for path in folder.glob("*.log") if call_id.encode() in path.read_bytes())
    data = path.read_bytes()
    begin = data.index(LINE_BEGIN % call_id.encode())
    place = data.index(CHARGE, begin) + len(CHARGE)
    digit = data[place : place + 1]
    assert digit.isdigit()
    path.write_bytes(data[:place] + (b"8" if digit != b"8" else b"9") + data[place + 1 :])

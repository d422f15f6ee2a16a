"""Both nodes behind the sample nginx are restarted in turn, under load: no client notices.

As docs/operations.md says: SIGTERM, wait until it has ended, start it, wait until it is ready.
"""

import os
import time

import pytest

from tests.gateway.test_nginx import document
from tests.support.client import wait_until
from tests.support.gateway import Gateway
from tests.support.nginx import Nginx, product_configuration
from tests.support.ports import free_port
from tests.support.steady import Pace, Steady
from tests.support.upstream import ScriptedUpstream

SHORT = Pace(calls_s=20, streams=30, gap_ms=100, chunks=20)
FULL = Pace(calls_s=200, streams=500, gap_ms=1000, chunks=15)
PACES = [SHORT, pytest.param(FULL, marks=pytest.mark.long)]
DRAIN_WITHIN_S = 90
START_WITHIN_S = 60
RECORDED_WITHIN_S = 60


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.long)])
def site(request, tmp_path):
    """Yield (nodes, port of nginx, secret): two nodes, one store."""
    settings = {
        "server.trusted_proxies": '["127.0.0.1/32"]',
        "log.level": "info",
        "server.drain_timeout_s": DRAIN_WITHIN_S,
    }
    if request.param == "mariadb":
        settings["store.url"] = request.getfixturevalue("mariadb").fresh_url()
    (tmp_path / "nginx").mkdir()
    with ScriptedUpstream() as vendor:
        first = Gateway(tmp_path / "node", settings)
        nodes = [first, first.sibling("second")]
        [key] = first.apply(document(vendor.url))["keys"]
        port = free_port()
        text = product_configuration(tmp_path / "nginx", port, nodes)
        nginx = Nginx(tmp_path / "nginx", port, text)
        try:
            for node in nodes:
                node.start()
            yield nodes, port, key["secret"]
        finally:
            nginx.close()
            for node in nodes:
                node.close()


@pytest.mark.parametrize("pace", PACES, ids=["short", "full"])
def test_no_call_fails_no_stream_breaks_and_no_record_is_lost(site, pace):
    nodes, port, secret = site
    with Steady(port, secret, pace) as load:
        assert wait_until(lambda: load.in_flight == pace.streams, 4 * pace.stream_s + 10)
        began = time.monotonic()
        for node in nodes:
            before = len(load.seen.calls)
            assert node.stop(DRAIN_WITHIN_S + 20) == 0
            node.start(wait_s=START_WITHIN_S)
            assert wait_until(lambda b=before: len(load.seen.calls) > b + 5, 30)
        took_s = time.monotonic() - began
        time.sleep(pace.stream_s / 2)
    seen = load.seen
    print(
        f"{len(seen.calls)} calls and {len(seen.streams)} streams while two nodes were replaced"
        f" in {took_s:.0f} s, load average {os.getloadavg()[0]:.1f}: {len(seen.faults)} faults"
    )
    assert seen.faults == [], f"{len(seen.faults)}: {seen.faults[:5]}"
    assert len(seen.calls) > 20 and len(seen.streams) >= pace.streams

    def recorded():
        records = nodes[0].usage()
        return records if len(records) >= len(seen.ids) else None

    records = wait_until(recorded, RECORDED_WITHIN_S, step_s=1) or nodes[0].usage()
    assert len(records) == len(seen.calls) + len(seen.streams)
    assert {record["id"] for record in records} == seen.ids
    assert {record["outcome"] for record in records} == {"ok"}
    assert len({record["node"] for record in records}) == 2
    nodes[0].run("usage", "verify")
    nodes[0].run("books", "verify")

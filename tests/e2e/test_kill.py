"""SIGKILL at any moment: whatever an upstream has seen is recorded once, and the books are right.

Each call carries a name of its own in its prompt and in X-Client-Request-Id: the vendor's log, the
records and what the client saw are matched by it.
"""

import contextlib
import itertools
import json
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from decimal import Decimal

import pytest

from tests.gateway import Gateway
from tests.handlers.client import Closed, Connection, events, wait_until
from tests.handlers.dialects import ALL, CHAT, ask, credentials, is_error, is_terminal, path_of
from tests.handlers.documents import CREDIT, channel, document
from tests.upstream import ScriptedUpstream

CYCLES = 5
CALLERS = 20
STARTS_WITHIN_S = 5
NAME = re.compile(r"call-\d+-\d+")
MODEL = "demo-small"
LOST = "gateway_lost"
# what the callers do in turn: short and long, plain and streamed, and what takes some time
PROMPTS = (
    ("[[demo ms=5]]", True),
    ("[[demo]]", False),
    ("[[demo ms=40 chunks=30]]", True),
    ("[[demo first_ms=120]]", False),
    ("[[demo first_ms=60 ms=1 chunks=200]]", True),
    ("[[demo status=500]]", False),
    ("[[demo ms=2 cut=4]]", True),
)


@pytest.fixture(params=["sqlite", "mariadb"])
def node(request, tmp_path):
    """(gateway, vendor with a log file): two workers, on each kind of store."""
    folder = tmp_path / "node"
    settings = {"server.workers": 2, "log.level": "info"}
    if request.param == "mariadb":
        settings["store.url"] = request.getfixturevalue("mariadb").fresh_url()
    with ScriptedUpstream(log_file=tmp_path / "vendor.log") as vendor:
        gateway = Gateway(folder, settings)
        channels = [channel(f"only-{f}", f, vendor.url, {MODEL: MODEL}) for f in ALL]
        gateway.apply(document([MODEL], channels))
        try:
            gateway.start()
            yield gateway, tmp_path / "vendor.log"
        finally:
            gateway.close()


class Load:
    """Callers that call without a pause until they are told to stop; what they saw, by name."""

    def __init__(self, port, cycle):
        self.whole = {}  # name -> status of an answer that came to its proper end
        self.began = set()
        self._port = port
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self._threads = [
            threading.Thread(target=self._call_on, args=(cycle,), daemon=True)
            for _ in range(CALLERS)
        ]
        for thread in self._threads:
            thread.start()

    def _call_on(self, cycle):
        while not self._stop.is_set():
            number = next(self._numbers)
            try:
                self._call(f"call-{cycle}-{number}", number)
            except (OSError, Closed, IndexError):
                time.sleep(0.01)  # the gateway is dead; the test will end this soon

    def _call(self, name, number):
        family = ALL[number % len(ALL)]
        script, stream = PROMPTS[number % len(PROMPTS)]
        body = ask(family, MODEL, f"{script} {name}", stream)
        if family == CHAT and stream:
            body["stream_options"] = {"include_usage": True}
        headers = {**credentials(family), "X-Client-Request-Id": name, "Connection": "close"}
        with Connection(self._port, patience_s=10) as connection:
            self.began.add(name)
            connection.request("POST", path_of(family, MODEL, stream), headers, body)
            answer = connection.read()
        if answer.whole:
            self.whole[name] = (answer.status, not stream or ended_well(answer.body))

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "a caller hangs"


def ended_well(body):
    last = events(body)[-1]
    return is_terminal(last) and not is_error(last)


def names_in(log_path):
    """Names of the calls that reached the vendor."""
    return {NAME.search(line)[0] for line in log_path.read_text().splitlines() if NAME.search(line)}


def first_answer_s(gateway):
    """Seconds from the start of the processes to the first answer of a call."""
    began = time.monotonic()
    gateway.start()
    body = ask(CHAT, MODEL, "hello")
    status, _, _ = gateway.call("POST", path_of(CHAT, MODEL), body, credentials())
    assert status == 200
    return time.monotonic() - began


def check_books(gateway, seen_by_vendor, whole, began):
    """Every promise about records and money, after everything has been applied."""

    def all_recorded():
        records = gateway.usage()
        names = {record["client_request_id"] for record in records}
        return records if seen_by_vendor <= names else None

    records = wait_until(all_recorded, 20, step_s=0.3) or gateway.usage()
    count = Counter(record["client_request_id"] for record in records)
    assert seen_by_vendor - set(count) == set(), "calls that the vendor saw have no record"
    doubles = {name: n for name, n in count.items() if name and n > 1}
    assert doubles == {}
    assert len({record["id"] for record in records}) == len(records)
    assert {name for name in count if name} <= began
    by_name = {record["client_request_id"]: record for record in records}
    for name, (status, ended) in whole.items():
        record = by_name.get(name)
        assert record is not None, f"{name} was answered with {status} and has no record"
        assert record["status"] == status, record
        assert (record["outcome"] == "ok") is (status == 200 and ended), record
    for record in records:
        sum_of_charges = sum(Decimal(charge["amount"]) for charge in record["charges"])
        assert sum_of_charges == Decimal(record["cost"]) >= 0
        if record["outcome"] == LOST:
            assert record["error_code"] == LOST and record["node"]
    gateway.run("usage", "verify")
    gateway.run("books", "verify")

    def wallet_agrees():
        shown = json.loads(gateway.run("wallet", "show", "--user", "owner", "--json"))
        costs = sum(Decimal(record["cost"]) for record in gateway.usage())
        return Decimal(shown["balance"]) == Decimal(CREDIT) - costs

    # The call that asked whether it serves again may be written between the two readings.
    assert wait_until(wallet_agrees, 10, step_s=0.3)
    return records


def test_every_call_is_recorded_once_however_often_all_processes_are_killed(node):
    gateway, log_path = node
    chance = random.Random(20261121)
    whole, began, slowest_s = {}, set(), 0.0
    for cycle in range(CYCLES):
        load = Load(gateway.port, cycle)
        time.sleep(chance.uniform(0.3, 1.5))
        gateway.kill()
        load.stop()
        whole |= load.whole
        began |= load.began
        slowest_s = max(slowest_s, first_answer_s(gateway))
    # A last quiet moment: no call runs, everything of the dead is adopted.
    seen = names_in(log_path)
    assert len(seen) > CYCLES * CALLERS and len(whole) > CYCLES
    records = check_books(gateway, seen, whole, began)
    outcomes = Counter(record["outcome"] for record in records)
    assert outcomes[LOST] >= CYCLES and outcomes["ok"] > 0
    lost = [record for record in records if record["outcome"] == LOST]
    assert any(Decimal(r["cost"]) > 0 for r in lost) and any(r["cost"] == "0" for r in lost)
    assert gateway.stop() == 0
    gateway.run("books", "verify")
    assert slowest_s <= STARTS_WITHIN_S
    assert "Traceback" not in gateway.log()


STREAMS = 16


def test_a_worker_that_is_killed_is_replaced_and_its_calls_are_recorded(node):
    gateway, _ = node
    first, second = gateway.worker_pids()
    with contextlib.ExitStack() as stack:
        streams = []
        for number in range(STREAMS):
            connection = stack.enter_context(Connection(gateway.port))
            family = ALL[number % len(ALL)]
            headers = {**credentials(family), "X-Client-Request-Id": f"call-0-{number}"}
            body = ask(family, MODEL, f"[[demo ms=100 chunks=40]] call-0-{number}", stream=True)
            connection.request("POST", path_of(family, MODEL, stream=True), headers, body)
            answer = connection.read_head()
            answer.pieces.append(connection.read_chunk())
            streams.append((connection, answer))
        time.sleep(1.5)  # so that a mark is in the journal
        killed = time.monotonic()
        os.kill(first, signal.SIGKILL)

        def replaced():
            pids = gateway.worker_pids()
            return len(pids) == 2 and first not in pids

        assert wait_until(replaced, 10)
        assert second in gateway.worker_pids(), "the other slot was touched"
        assert wait_until(gateway.ready, 10) and time.monotonic() - killed < 10
        for connection, answer in streams:
            with contextlib.suppress(Closed, ConnectionError):
                connection.read_body(answer)
    whole = {answer.call_id for _, answer in streams if answer.whole}
    cut = {answer.call_id for _, answer in streams} - whole
    assert whole and cut, "all streams were with one worker"
    records = {
        record["id"]: record
        for record in wait_until(lambda: all_of(gateway, STREAMS), 15, step_s=0.3)
    }
    assert set(records) == whole | cut
    for call_id in whole:
        assert records[call_id]["outcome"] == "ok"
    for call_id in cut:
        record = records[call_id]
        assert (record["outcome"], record["error_code"]) == (LOST, LOST)
        assert record["output_tokens"] > 0 and Decimal(record["cost"]) > 0
        assert record["usage_source"] == "estimated" and record["status"] == 200
    for _ in range(4):  # both workers serve
        body = ask(CHAT, MODEL, "hello")
        assert gateway.call("POST", path_of(CHAT, MODEL), body, credentials())[0] == 200
    gateway.run("usage", "verify")
    gateway.run("books", "verify")


def all_of(gateway, number):
    records = gateway.usage()
    return records if len(records) >= number else None

"""SIGKILL at random times: each call that the upstream saw is recorded once, and the books are
correct."""

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from decimal import Decimal

import pytest

from commands.process.child import CLOSE_LOOKS, SILENT_LOOKS
from tests.support.client import Closed, Connection, exchange, wait_until
from tests.support.dialects import ALL, CHAT, ask, credentials, path_of
from tests.support.documents import CREDIT
from tests.support.journal import marked
from tests.support.load import (
    LOST,
    MODEL,
    Load,
    Manner,
    check_books,
    first_answer_s,
    gateway_before,
    left_by,
    names_in,
)
from tests.support.upstream import ScriptedUpstream

FIRST_ANSWER_WITHIN_S = 30  # ten times what is promised
PATIENCE_S = 20
CYCLES_AND_CALLERS = [(2, 20), pytest.param(20, 40, marks=pytest.mark.long)]


STORES = ["sqlite", pytest.param("mariadb", marks=pytest.mark.long)]


@pytest.fixture
def node(request, tmp_path):
    """Yield (gateway, vendor with a log file): two workers, on each kind of store. Calls count
    against a limit of their user, and cost half if they are served by tier flex."""
    settings = {"server.workers": 2}
    if request.param == "mariadb":
        settings["store.url"] = request.getfixturevalue("mariadb").fresh_url()
    with ScriptedUpstream(log_file=tmp_path / "vendor.log") as vendor:
        gateway = gateway_before(vendor, tmp_path / "node", settings)
        flex = {"when": {"tier": "flex"}, "factor": "0.5"}
        gateway.apply({"user": [{"name": "owner", "limit": CREDIT}]})
        gateway.apply({"model": [{"name": MODEL, "rate": [flex]}]})
        try:
            gateway.start()
            yield gateway, tmp_path / "vendor.log"
        finally:
            gateway.close()


@pytest.mark.parametrize("node", STORES, indirect=True)
@pytest.mark.parametrize(("cycles", "callers"), CYCLES_AND_CALLERS)
def test_every_call_is_recorded_once_however_often_all_processes_are_killed(node, cycles, callers):
    gateway, log_path = node
    chance = random.Random(20261121)
    loads, first_answers = [], []
    for cycle in range(cycles):
        load = Load(gateway.port, str(cycle), Manner(callers=callers))
        loads.append(load)
        time.sleep(chance.uniform(0.3, 1.5))
        gateway.kill()
        load.stop()
        first_answers.append(first_answer_s(gateway))
    # A quiet moment at the end: no call runs, and everything of dead processes has been adopted.
    seen = names_in(log_path)
    whole = [call for load in loads for call in load.seen if call.whole]
    assert len(seen) > cycles * callers and len(whole) > cycles
    records = check_books(gateway, seen, loads)
    outcomes = Counter(record["outcome"] for record in records)
    assert outcomes[LOST] >= cycles and outcomes["ok"] > 0
    lost = [record for record in records if record["outcome"] == LOST]
    assert any(Decimal(r["cost"]) > 0 for r in lost) and any(r["cost"] == "0" for r in lost)
    assert gateway.stop() == 0
    gateway.run("books", "verify")
    spent = json.loads(gateway.run("user", "show", "owner", "--json"))["spent"]
    assert Decimal(spent) == Decimal(CREDIT) - left_by(gateway.usage())
    print(f"{cycles} kills, {len(seen)} calls at the vendor, {len(records)} records, {outcomes}")
    print(f"first answer after a start: {max(first_answers):.2f} s at most")
    assert max(first_answers) <= FIRST_ANSWER_WITHIN_S
    assert "Traceback" not in gateway.log()


STREAMS = 16


@pytest.mark.parametrize("node", STORES[:1], indirect=True)
def test_a_worker_that_is_killed_is_replaced_and_its_calls_are_recorded(node):
    gateway, _ = node
    first, second = gateway.worker_pids()
    with contextlib.ExitStack() as stack:
        streams = []
        for number in range(STREAMS):
            connection = stack.enter_context(Connection(gateway.port))
            family = ALL[number % len(ALL)]
            headers = {**credentials(family), "X-Client-Request-Id": f"call-0-{number}"}
            words = f"[[demo ms=100 chunks=40 tier=flex]] call-0-{number}"
            body = ask(family, MODEL, words, stream=True)
            connection.request("POST", path_of(family, MODEL, stream=True), headers, body)
            answer = connection.read_head()
            answer.pieces.append(connection.read_chunk())
            streams.append((connection, answer))
        ids = {answer.call_id for _, answer in streams}
        assert wait_until(lambda: ids <= marked(gateway), 20)
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
        is_flex = record["family"] == CHAT
        assert record["rate"] == ({"tier": "flex"} if is_flex else {})
        assert not is_flex or record["served"] == {"tier": "flex"}
    for _ in range(4):  # both workers serve
        body = ask(CHAT, MODEL, "hello")
        assert gateway.call("POST", path_of(CHAT, MODEL), body, credentials())[0] == 200
    gateway.run("usage", "verify")
    gateway.run("books", "verify")


def all_of(gateway, number):
    records = gateway.usage()
    return records if len(records) >= number else None


# ---- a worker whose loop hangs -------------------------------------------------------------------


@pytest.fixture
def one_worker(tmp_path):
    with ScriptedUpstream() as vendor:
        gateway = gateway_before(vendor, tmp_path / "node")
        try:
            gateway.start()
            yield gateway
        finally:
            gateway.close()


def call(gateway):
    headers, body = credentials(CHAT), ask(CHAT, MODEL, "hello")
    return exchange(gateway.port, "POST", path_of(CHAT, MODEL), headers, body)


def refuses(gateway):
    """Return True if connections are refused. A stopped worker's queue of connections fills up,
    and then nothing answers."""
    try:
        Connection(gateway.port, patience_s=1).close()
    except ConnectionRefusedError:
        return True
    except TimeoutError:
        pass
    return False


@pytest.mark.long
def test_a_worker_that_hangs_refuses_and_is_replaced(one_worker):
    gateway = one_worker
    (pid,) = gateway.worker_pids()
    os.kill(pid, signal.SIGSTOP)
    assert wait_until(lambda: refuses(gateway), CLOSE_LOOKS + PATIENCE_S)
    os.kill(pid, signal.SIGCONT)
    assert wait_until(lambda: not refuses(gateway), PATIENCE_S)
    assert call(gateway).status == 200
    assert gateway.worker_pids() == [pid]
    assert "cannot accept" not in gateway.log()  # it continues normally

    with Connection(gateway.port) as connection:
        body = ask(CHAT, MODEL, "[[demo ms=100 chunks=600]]", stream=True)
        path = path_of(CHAT, MODEL, stream=True)
        connection.request("POST", path, credentials(CHAT), body)
        answer = connection.read_head()
        assert wait_until(lambda: answer.call_id in marked(gateway), PATIENCE_S)
        os.kill(pid, signal.SIGSTOP)
        assert wait_until(lambda: refuses(gateway), CLOSE_LOOKS + PATIENCE_S)
        assert wait_until(lambda: gateway.worker_pids() != [pid], SILENT_LOOKS + PATIENCE_S)
    assert wait_until(gateway.ready, PATIENCE_S)
    assert call(gateway).status == 200
    assert gateway.record(answer.call_id, PATIENCE_S)["outcome"] == LOST
    gateway.run("books", "verify")

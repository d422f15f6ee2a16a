"""The supervisor with real processes and signals; the workers are scripts/fake_worker.py."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands.process.child import CLOSE_LOOKS, SILENT_LOOKS
from commands.process.node import PARKED_NAME
from commands.process.supervisor import SECOND_SIGNAL_S
from conf import secrets
from tests.support import leash
from tests.support.ports import free_port

SCRIPTS = Path(__file__).parent / "scripts"
HUNG_S = 10  # for what takes the supervisor two or three looks
SHORT_LOOK_S = 0.4


def until(condition, timeout_s=5.0):
    """Return the first true value of condition(); fail at the timeout."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {timeout_s} s: {condition}")


def refused(host: str, port: int) -> bool:
    """Return True if nobody listens there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Gateway:
    """One supervisor under test."""

    def __init__(self, folder: Path, mode: str, *more: str, look_s: str = "", **settings):
        self.folder, self.port, self.ops_port = folder, free_port(), free_port()
        self.log_path = folder / "log"
        values = {
            "server.port": self.port,
            "ops.port": self.ops_port,
            "hub.enabled": "false",
            **{name.replace("__", "."): value for name, value in settings.items()},
        }
        self.config = folder / "gateway.toml"
        self.config.write_text("".join(f"{name} = {value}\n" for name, value in values.items()))
        if not (folder / "secrets.toml").exists():
            secrets.create(folder / "secrets.toml")
        worker = [sys.executable, str(SCRIPTS / "fake_worker.py"), mode, *more]
        command = [sys.executable, str(SCRIPTS / "run_supervisor.py"), str(self.config), *worker]
        with open(self.log_path, "ab") as log:
            self.process = leash.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "LOOK_S": look_s},
            )

    def log(self) -> str:
        return self.log_path.read_text()

    def lines(self, message: str) -> list[dict]:
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in lines if line["message"] == message]

    def ops(self, path: str, method: str = "GET", headers=None) -> tuple[int, dict]:
        connection = http.client.HTTPConnection("127.0.0.1", self.ops_port, timeout=5)
        try:
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"{}")
        finally:
            connection.close()

    def ready(self) -> bool:
        try:
            return self.ops("/readyz")[0] == 200
        except OSError:
            return False

    def all_ready(self) -> list[int]:
        """Return the pids of the workers once all are ready, until then nothing."""
        if not self.ready():
            return []
        workers = self.ops("/status")[1]["workers"]
        return [] if any(worker["why"] for worker in workers) else [w["pid"] for w in workers]

    def answering_pid(self) -> int:
        """Return the pid of the worker that serves a new connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            said = b""
            while chunk := client.recv(1000):
                said += chunk
            return int(said.rpartition(b"\n")[2])

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def wait(self, timeout_s: float = 6.0) -> int:
        return self.process.wait(timeout_s)

    def close(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(5)


@pytest.fixture
def start(tmp_path):
    """Return start(mode, …), which returns a Gateway; all are killed at the end."""
    running = []

    def run(mode, *more, folder="one", **options):
        (tmp_path / folder).mkdir(exist_ok=True)
        running.append(Gateway(tmp_path / folder, mode, *more, **options))
        return running[-1]

    yield run
    for gateway in running:
        gateway.close()


def test_a_dead_worker_is_replaced_on_its_socket(start):
    gateway = start("good", server__workers=2)
    first, second = until(gateway.all_ready)
    os.kill(first, signal.SIGKILL)
    began = time.monotonic()
    # no connection is refused or reset meanwhile, whichever slot the kernel picks
    served = {gateway.answering_pid() for _ in range(40)}
    pids = until(lambda: [p for p in gateway.all_ready() if p != first], 2.0 + 1)
    until(lambda: len([p for p in gateway.all_ready() if p != first]) == 2)
    assert time.monotonic() - began < 2.0
    assert second in pids
    assert first not in served
    died = gateway.lines("worker died")[0]
    assert died["signal"] == "SIGKILL" and "exit_code" not in died


def test_early_deaths_are_backed_off_and_close_the_slot(start):
    gateway = start("dies")
    until(lambda: len(gateway.lines("worker died")) == 3, 6)
    delays = [line["next_in_s"] for line in gateway.lines("worker died")]
    assert delays == [0.5, 1.0, 2.0]
    assert gateway.ops("/readyz")[0] == 503
    until(lambda: gateway.lines("slot closed: no worker accepts its connections"), HUNG_S)
    assert refused("127.0.0.1", gateway.port)
    gateway.signal(signal.SIGTERM)
    assert gateway.wait(HUNG_S) == 0  # nothing ran that could be lost


def test_drain_waits_for_the_workers_and_exits_0(start):
    gateway = start("slow-drain", server__workers=2)
    until(gateway.all_ready)
    gateway.signal(signal.SIGTERM)
    until(lambda: gateway.ops("/readyz")[0] == 503)
    status, answer = gateway.ops("/readyz")
    assert (status, answer["reason"]) == (503, "draining")
    assert gateway.ops("/livez")[0] == 200
    assert gateway.ops("/status")[1]["draining"] is True
    until(lambda: refused("127.0.0.1", gateway.port))  # closed with the last worker's socket
    answers = 0
    while gateway.process.poll() is None:
        try:
            answers += gateway.ops("/readyz")[0] == 503
        except OSError:
            break
    assert answers > 10  # the ops port answers as long as the workers take
    assert gateway.wait() == 0


def test_second_signal_ends_deaf_workers_within_3_s(start):
    gateway = start("deaf", server__workers=2)
    pids = until(gateway.all_ready)
    gateway.signal(signal.SIGTERM)
    until(lambda: gateway.lines("gateway draining"))
    time.sleep(SECOND_SIGNAL_S)
    assert gateway.process.poll() is None
    began = time.monotonic()
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 1
    assert time.monotonic() - began < 3.0
    assert not any(map(alive, pids))


def test_sigint_drains_like_sigterm_and_signals_within_a_second_are_one(start):
    gateway = start("slow-drain")
    until(gateway.all_ready)
    os.killpg(gateway.process.pid, signal.SIGINT)  # Ctrl-C reaches the whole group
    until(lambda: gateway.lines("gateway draining"))
    gateway.signal(signal.SIGTERM)
    gateway.signal(signal.SIGINT)
    assert gateway.wait() == 0
    assert not gateway.lines("gateway stopping at once")
    assert "Traceback" not in gateway.log()


def test_who_comes_while_it_drains_is_told_so(start):
    first = start("slow-drain")
    until(first.all_ready)
    first.signal(signal.SIGTERM)
    until(lambda: first.lines("gateway draining"))
    second = start("good")
    assert second.wait() == 1
    assert f"still draining: process {first.process.pid} " in second.log()
    assert f"kill {first.process.pid}" in second.log()
    assert first.wait() == 0


def test_a_drain_over_its_time_is_forced(start):
    gateway = start("deaf", server__drain_timeout_s=1)
    (pid,) = until(gateway.all_ready)
    gateway.signal(signal.SIGTERM)
    time.sleep(1.8)  # less than limit plus margin, 1 s each
    assert gateway.process.poll() is None
    assert gateway.wait() == 1
    assert not alive(pid)


def test_a_refusing_worker_ends_the_start(start):
    gateway = start("refuses", server__workers=2)
    assert gateway.wait() == 1
    assert "refused to start" in gateway.log()


def test_a_journal_in_use_exits_1_and_names_the_setting(start):
    first = start("good")
    until(first.all_ready)
    journal = first.folder / "journal"
    other = start("good", folder="other", journal__dir=json.dumps(str(journal)))
    assert other.wait() == 1
    assert f"journal.dir {journal}" in other.log() and "Traceback" not in other.log()
    assert str(first.process.pid) in other.log() and first.ready()


def test_worker_gets_its_orders_and_nothing_else(start, tmp_path):
    notes = tmp_path / "notes.json"
    gateway = start("notes", str(notes), server__workers=1, upstream__heartbeat_s=7)
    until(gateway.all_ready)
    orders = json.loads(notes.read_text())
    assert orders["settings"]["upstream"]["heartbeat_s"] == 7
    assert orders["secrets_path"] == str(gateway.folder / "secrets.toml")
    assert orders["slot"] == 0
    assert orders["node"] == (gateway.folder / "journal" / "node").read_text().strip()
    names = ("listen", "state", "limits", "responses", "leases", "metrics")
    own = {0, 1, 2, *(orders[f"{name}_fd"] for name in names)}
    extra = set(orders["descriptors"]) - own
    assert len(extra) <= 2  # the notes file and the listed folder
    assert signal.SIGINT in orders["masked"]


def test_a_good_node(start):
    gateway = start("good", server__workers=2)
    pids = until(gateway.all_ready)
    status = gateway.ops("/status")[1]
    assert (status["streams"], status["calls"]) == (4, 6)
    assert [(w["pid"], w["slot"]) for w in status["workers"]] == [(pids[0], 0), (pids[1], 1)]
    assert status["parked"] == 0
    assert status["overhead_ms"].keys() == status["loop_lag_ms"].keys() == {"p50", "p99"}
    (gateway.folder / "journal" / PARKED_NAME).write_text("{}\n")
    assert gateway.ops("/status")[1]["parked"] == 1
    # the limit of descriptors is raised for the workers
    limits = Path(f"/proc/{pids[0]}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert line.split()[3] == line.split()[4]
    # the supervisor stays small
    rollup = Path(f"/proc/{gateway.process.pid}/smaps_rollup").read_text()
    (line,) = [line for line in rollup.splitlines() if line.startswith("Pss:")]
    assert int(line.split()[1]) < 18 * 1024
    maps = Path(f"/proc/{gateway.process.pid}/maps").read_text()
    assert "libssl" not in maps  # loading it takes 7 MB
    # POST /drain takes the node out of rotation, and it goes on
    assert gateway.ops("/drain", "POST", {"Origin": "http://evil.example"})[0] == 403
    assert gateway.ready()
    assert gateway.ops("/drain", "POST")[0] == 200
    assert gateway.ops("/readyz")[0] == 503
    assert gateway.answering_pid() > 0


def test_a_reload_takes_no_token_from_a_port_that_stays_bound_beyond_loopback(start):
    gateway = start("good", ops__host="'0.0.0.0'", ops__token="'s3cret-token'")
    until(gateway.ready)
    stranger = {"Host": "balancer.example"}
    bearer = {"Authorization": "Bearer s3cret-token"}
    assert gateway.ops("/livez", headers=stranger)[0] == 200
    assert gateway.ops("/status", headers={**bearer, **stranger})[0] == 403
    lines = gateway.config.read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("ops.host", "ops.token"))]
    gateway.config.write_text("\n".join(kept) + "\n")
    gateway.signal(signal.SIGHUP)
    until(lambda: gateway.lines("reloading"))
    assert gateway.lines("reload: setting takes effect after a restart")[0]["setting"] == "ops.host"
    assert gateway.ops("/status")[0] == gateway.ops("/drain", "POST")[0] == 401
    assert gateway.ops("/status", headers=bearer)[0] == 200
    assert "s3cret-token" not in gateway.log()


def test_without_reports_it_is_not_ready(start):
    gateway = start("no-reports")
    until(lambda: gateway.lines("worker started"))
    status, answer = gateway.ops("/readyz")
    assert (status, answer["reason"]) == (503, "no worker is ready: starting")


def stopped(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def test_the_socket_of_a_hung_slot_is_closed_alone_and_opened_when_its_worker_goes_on(start):
    gateway = start("good", server__workers=2)
    first, second = until(gateway.all_ready)
    stopped([first])
    until(lambda: gateway.lines("slot closed: no worker accepts its connections"), HUNG_S)
    assert {gateway.answering_pid() for _ in range(40)} == {second}
    assert gateway.ops("/livez")[0] == gateway.ops("/readyz")[0] == 200
    os.kill(first, signal.SIGCONT)
    until(lambda: gateway.lines("slot opened: a worker accepts its connections"), HUNG_S)
    until(lambda: {gateway.answering_pid() for _ in range(40)} == {first, second}, HUNG_S)
    assert not gateway.lines("worker hangs")


def test_a_node_whose_workers_hang_closes_its_port_and_replaces_them(start):
    gateway = start(
        "late", server__workers=2, look_s=str(SHORT_LOOK_S)
    )  # leaves time to see that no worker listens
    hung = until(gateway.all_ready)
    stopped(hung)
    until(lambda: refused("127.0.0.1", gateway.port), HUNG_S)
    status, answer = gateway.ops("/readyz")
    assert status == 503 and "its loop has been silent for" in answer["reason"]
    assert gateway.ops("/livez")[0] == 200
    until(lambda: gateway.ops("/livez")[0] == 503, SILENT_LOOKS + HUNG_S)
    until(lambda: len(gateway.lines("worker hangs")) == 2, HUNG_S)
    pids = until(gateway.all_ready, HUNG_S)
    assert not set(pids) & set(hung) and not any(map(alive, hung))
    until(lambda: {gateway.answering_pid() for _ in range(20)} == set(pids), HUNG_S)
    assert gateway.ops("/livez")[0] == 200
    assert {line["signal"] for line in gateway.lines("worker died")} == {"SIGKILL"}


def test_a_machine_that_was_suspended_kills_nobody(start):
    gateway = start("good", server__workers=2, look_s=str(SHORT_LOOK_S))
    pids = until(gateway.all_ready)
    everybody = [gateway.process.pid, *pids]
    stopped(everybody)
    time.sleep((SILENT_LOOKS + 2) * SHORT_LOOK_S)
    for pid in everybody:
        os.kill(pid, signal.SIGCONT)
    time.sleep((CLOSE_LOOKS + 1) * SHORT_LOOK_S)
    assert until(gateway.all_ready) == pids
    assert not gateway.lines("worker hangs") and not gateway.lines("worker died")
    assert gateway.ops("/livez")[0] == 200


def test_ops_port_can_be_switched_off(start):
    gateway = start("good", ops__enabled="false")
    until(lambda: gateway.lines("worker started"))
    with pytest.raises(ConnectionRefusedError):
        gateway.ops("/livez")


def test_a_reload_replaces_the_workers_unless_the_file_is_bad(start):
    gateway = start("good", server__workers=2)
    before = until(gateway.all_ready)
    good = gateway.config.read_text()
    gateway.config.write_text(good + "upstraem.idle_timeout_s = 5\n")
    gateway.signal(signal.SIGHUP)
    (line,) = until(lambda: gateway.lines("reload refused; current configuration kept"))
    assert "upstraem" in line["fault"]
    assert gateway.all_ready() == before
    gateway.config.write_text(good + "upstream.heartbeat_s = 3\n")
    gateway.signal(signal.SIGHUP)
    until(lambda: len(gateway.lines("worker ended")) == 2)
    served = {gateway.answering_pid() for _ in range(20)}
    after = set(until(gateway.all_ready))
    assert len(after) == 2 and not after & set(before)
    assert served <= after
    assert [line["exit_code"] for line in gateway.lines("worker ended")] == [0, 0]

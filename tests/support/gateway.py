"""A gateway as an operator runs it, for tests: real processes, real ports, real files.

`Gateway` creates a folder with `app.py init`, fills it with `apply`, starts `serve`, and reads the
records. Everything goes through the command line, as for any operator.
"""

import copy
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from store.calls.usage_queries import Filters, follow
from store.db.database import discard, execute, open_database, transaction
from store.values.ids import first_ulid
from store.values.usage_record import to_public
from tests.support import commands, leash
from tests.support.client import wait_until
from tests.support.ports import HOST, free_port

ROOT = Path(__file__).resolve().parents[2]
TAIL_PAUSE_S = 0.03
TABLES_WITH_NAMES = ("usage_records", "usage_by_key", "usage_by_user")
IDLE_WITHIN_S = 10
TAKE_OVER_CALLS = 20  # on connections that the kernel spreads over the workers


class Gateway:
    """One node in a folder of its own."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.port, self.ops_port = free_port(), free_port()
        self.settings = {
            "server.port": self.port,
            "ops.port": self.ops_port,
            "hub.enabled": "false",
            "log.level": "debug",
            **(settings or {}),
        }
        self.config = folder / "gateway.toml"
        self.log_path = folder / "serve.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.tail: Tail | None = None
        self.env: dict[str, str] = {}  # for `serve`, in addition to the test's own environment
        self._node_flags: list[str] = []
        self._started: list[int] = []  # process ids
        self._log_begin = 0
        self._began_ms = 0  # older records belong to other tests
        self.run("init", str(folder), *self._flags(), config=False)

    def _flags(self) -> list[str]:
        return [
            part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")
        ]

    def sibling(self, name: str, settings: dict[str, Any] | None = None) -> "Gateway":
        """Return another node of the same store; it differs in its ports, its journal and
        `settings`."""
        other = copy.copy(self)
        other.process = other.tail = None
        other._log_begin = 0
        self._started = []  # no longer taken over by other tests
        other.port, other.ops_port = free_port(), free_port()
        other.log_path = self.folder / f"{name}.log"
        own = {
            "server.port": other.port,
            "ops.port": other.ops_port,
            "journal.dir": self.folder / f"{name}-journal",
            **(settings or {}),
        }
        other._node_flags = [part for k, v in own.items() for part in ("--set", f"{k}={v}")]
        return other

    def run(self, *args: str, stdin: str = "", config: bool = True, code: int = 0) -> str:
        """Run a command that must exit with `code`; return its stdout."""
        done = commands.run([*args, *(["--config", str(self.config)] if config else [])], stdin)
        with self.log_path.open("a") as log:
            # Without what the command prints for the operator, which may contain a new secret.
            log.write(done.stderr)
        assert done.returncode == code, (
            f"{args}: exit {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
        )
        return done.stdout

    def apply(self, document: dict[str, Any]) -> Any:
        """Apply a document; return the printed JSON."""
        return json.loads(self.run("apply", "-", "--json", stdin=json.dumps(document)))

    def launch(self, *extra: str) -> None:
        """Start `serve` and do not wait."""
        flags = [*self._node_flags, *extra]
        argv = [sys.executable, str(ROOT / "app.py"), "serve", *flags, "--config", str(self.config)]
        with self.log_path.open("ab") as log:
            self.process = leash.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.env},
            )

    def start(self, *extra: str, wait_s: float = 20) -> None:
        """Start `serve` and wait until it is ready."""
        self.launch(*extra)
        assert self.process is not None
        deadline = time.monotonic() + wait_s
        while not self.ready():
            assert self.process.poll() is None, f"serve ended: {self.log()[-3000:]}"
            assert time.monotonic() < deadline, f"not ready: {self.log()[-3000:]}"
            time.sleep(0.05)
        self._started = self.pids()

    def take_over(self, document: dict[str, Any]) -> bool:
        """Replace all objects by those of a document, for a test that must not see those of
        earlier tests.

        Return False if the gateway does not run as it was started.
        """
        if self.pids() != self._started or not self.ready():
            return False
        self.run("apply", "-", "--prune", stdin="{}")
        # Calls recorded later would keep the names of their users.
        if not wait_until(self._is_idle, IDLE_WITHIN_S):
            return False
        self._began_ms = int(time.time() * 1000)
        self._rename_users_of_records(str(self._began_ms))
        # A worker looks for all changes when it sees a key that it does not know.
        secret, name = f"sk-taken-over-{self._began_ms}", "taken-over"
        more = {
            "group": [{"name": name}],
            "user": [{"name": name}],
            "key": [{"user": name, "name": name, "group": name, "secret": secret}],
        }
        try:
            self.apply(document | {kind: document.get(kind, []) + more[kind] for kind in more})
        except AssertionError as error:
            # Refusals beyond the first of a minute are recorded at the end of that minute.
            if "calls of an earlier user" in str(error):
                return False
            raise
        headers = {"Authorization": f"Bearer {secret}"}
        known = [self.call("GET", "/v1/models", headers=headers)[0] for _ in range(TAKE_OVER_CALLS)]
        assert set(known) == {200}, known
        self._log_begin = self.log_path.stat().st_size
        return True

    def _is_idle(self) -> bool:
        """Return True if no call runs and every call is recorded."""
        status = json.loads(self.call("GET", "/status", port=self.ops_port)[2])
        backlog = sum(worker.get("journal_backlog_bytes", 1) for worker in status["workers"])
        return not status["calls"] and not backlog

    def _rename_users_of_records(self, prefix: str) -> None:
        """Rename the users in old records, so that new users may have their names."""
        db = open_database(self.store_url)
        old = f"'{prefix}-' || \"user\""
        renames = [f'UPDATE "{table}" SET "user" = {old}' for table in TABLES_WITH_NAMES]
        transaction(db, lambda: [execute(db, rename) for rename in renames])
        discard(db)

    @property
    def store_url(self) -> str:
        return str(self.settings.get("store.url", f"sqlite:///{self.folder}/sluice.db"))

    def ready(self) -> bool:
        """Return True if /readyz says ready."""
        try:
            return self.call("GET", "/readyz", port=self.ops_port)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def ready_workers(self) -> int:
        """Return the number of workers that take calls. The socket of a slot without a worker is
        closed, which resets the connections that wait there."""
        state = json.loads(self.call("GET", "/status", port=self.ops_port)[2])
        return sum(not worker["why"] for worker in state["workers"])

    def stop(self, timeout_s: float = 20) -> int:
        """Send SIGTERM; return the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def pids(self) -> list[int]:
        """Return the ids of the supervisor and all its descendants, from /proc."""
        assert self.process is not None
        found = [self.process.pid]
        for entry in os.listdir("/proc"):
            if entry.isdigit() and _parent(int(entry)) in found:
                found.append(int(entry))
        return found

    def kill(self) -> None:
        """Kill every process with SIGKILL, the supervisor first."""
        if self.process is None:
            return
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(10)
        deadline = time.monotonic() + 5
        while _port_is_taken(self.port) and time.monotonic() < deadline:
            time.sleep(0.01)

    def close(self) -> None:
        """End whatever still runs."""
        if self.tail is not None:
            self.tail.close()
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def log(self) -> str:
        """Return everything that the node and its commands printed."""
        return self.log_path.read_bytes()[self._log_begin :].decode(errors="replace")

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        port: int | None = None,
        timeout_s: float = 20,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request; return (status, lower-case headers, body)."""
        connection = http.client.HTTPConnection(HOST, port or self.port, timeout=timeout_s)
        try:
            data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
            base = {"Content-Type": "application/json"} if data is not None else {}
            connection.request(method, path, body=data, headers={**base, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def worker_pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [pid for pid in self.pids()[1:] if b"worker" in _command_line(pid)]

    def follow(self) -> "Tail":
        """Watch records as they are written; faster than `record` for a test with many calls."""
        self.tail = Tail(self.store_url, self._began_ms)
        return self.tail

    def usage(self, **filters: Any) -> list[dict[str, Any]]:
        """Return the records as `usage export` prints them, oldest first."""
        args = ["usage", "export", "--format", "ndjson"]
        for name, value in filters.items():
            args += ["--" + name.replace("_", "-"), str(value)]
        records = [json.loads(line) for line in self.run(*args).splitlines()]
        first_id = first_ulid(self._began_ms)
        return [record for record in records if record["id"] >= first_id]

    def record(self, call_id: str, timeout_s: float = 20) -> dict[str, Any]:
        """Return the one record of a call; wait until it is there."""
        if self.tail is not None:
            return self.tail.record(call_id, timeout_s)
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.usage(request_id=call_id)
            if found or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert len(found) == 1, f"{len(found)} records of {call_id}"
        return found[0]


class _Closed(Exception):
    """The signal to the thread that the tail is closed."""


class Tail:
    """A follower of new records, in a thread of the test's own process."""

    def __init__(self, url: str, began_ms: int) -> None:
        self._began_ms = began_ms
        self._records: dict[str, dict[str, Any]] = {}
        self._news = threading.Condition()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(url,), daemon=True)
        self._thread.start()

    def _read(self, url: str) -> None:
        db = open_database(url)
        try:
            for row in follow(db, Filters(), self._began_ms, self._pause):
                record = to_public(row)
                if record["id"] < first_ulid(self._began_ms):
                    continue
                with self._news:
                    assert record["id"] not in self._records, f"shown twice: {record}"
                    self._records[record["id"]] = record
                    self._news.notify_all()
        except _Closed:
            pass
        finally:
            discard(db)

    def _pause(self, _: float) -> None:
        if self._closed.wait(TAIL_PAUSE_S):
            raise _Closed

    def record(self, call_id: str, timeout_s: float = 20) -> dict[str, Any]:
        """Return the record of a call; wait until it is there."""
        with self._news:
            self._news.wait_for(lambda: call_id in self._records, timeout_s)
            assert call_id in self._records, f"no record of {call_id}"
            return self._records[call_id]

    def find(self, timeout_s: float = 20, **fields: Any) -> dict[str, Any]:
        """Return the one record with these values; wait until it is there."""

        def found() -> list[dict[str, Any]]:
            wanted = fields.items()
            return [r for r in self._records.values() if all(r[k] == v for k, v in wanted)]

        with self._news:
            self._news.wait_for(found, timeout_s)
            assert len(found()) == 1, f"{len(found())} records with {fields}"
            return found()[0]

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._records

    def close(self) -> None:
        self._closed.set()
        self._thread.join(10)


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    fields = text.rpartition(")")[2].split()
    return -1 if fields[0] == "Z" else int(fields[1])


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


def _port_is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex((HOST, port)) == 0

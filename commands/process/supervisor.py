"""The supervisor: the first process of a gateway. It starts, watches and ends the workers.

Standard library and conf only (a test holds this): whatever is imported here stays in memory for as
long as the gateway runs. It relays nothing and never touches the store. One loop: signals and the
ops port are events of one selector, and the workers' states are read at every turn.
"""

import os
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from commands.process import listeners, node, ops_guard, ops_server
from commands.process.child import Companion, Slot, Worker
from commands.process.log_lines import Log
from commands.process.node import PortTaken, StartError
from conf import secrets
from conf.configuration import ConfigError, Loaded, find_config, load
from conf.settings import to_plain
from conf.values import is_loopback

APP = str(Path(__file__).resolve().parents[2] / "app.py")

DRAIN_MARGIN_S = 15.0  # for the workers' own ending of calls, before the supervisor uses force
TICK_S = 1.0
CHANGE_TICK_S = 0.1  # while workers start or drain
CONFIG_REFUSED = 3
SHARED_MEMORY = ("limits", "responses")  # files that all workers of the node map

SECOND_SIGNAL_S = 1.0  # what a terminal, make and a person's finger send at once is one signal
MAX_WELCOME_BYTES = 65536
OTHER_PORT = 8080

USAGE = "Usage: sluice serve [--config FILE] [--set SECTION.KEY=VALUE]…"


class Supervisor:
    """One gateway: `run` returns the exit code when everything has ended."""

    def __init__(
        self,
        loaded: Loaded,
        worker_command: Sequence[str],
        *,
        companions: Sequence[Companion] = (),
        hub_command: Sequence[str] = (),
        reload: Callable[[], Loaded] | None = None,
        drain_margin_s: float = DRAIN_MARGIN_S,
    ) -> None:
        self._loaded = loaded
        self._worker_command = worker_command
        self._companions = list(companions)
        self._hub_command = hub_command
        self._hub: Companion | None = None
        self._reload = reload
        self._drain_margin_s = drain_margin_s
        self._log = Log(loaded.settings.log.level, loaded.settings.log.format)
        self._selector = selectors.DefaultSelector()
        self._slots: list[Slot] = []
        self._leaving: list[Worker] = []
        self._draining = False
        self._draining_since = 0.0
        self._out_of_rotation = False  # POST /drain: not ready, all else goes on
        self._ever_ready = False
        self._failed = False
        self._ops: ops_server.OpsServer | None = None
        self._node = ""
        self._shared: dict[str, int] = {}
        self._bound_ops = loaded.settings.ops  # as it was when its port was bound

    def run(self, started: Callable[[], None] | None = None) -> int:
        """Until a signal ends it: 0 after a drain, 1 when it had to be forced. StartError.

        `started` is called when the ports are ours.
        """
        self._start()
        if started is not None:
            started()
        while not self._draining or any(self._workers()):
            now = time.monotonic()
            self._tend(now)
            for key, _ in self._selector.select(self._wait_s(now)):
                key.data()
        if self._ops:
            self._ops.close()
        for companion in self._companions:
            companion.end()
        self._log.info("gateway ended", exit_code=int(self._failed))
        return int(self._failed)

    # ---- start -----------------------------------------------------------------------------------

    def _start(self) -> None:
        settings = self._loaded.settings
        folder = Path(settings.journal.dir)
        self._lock = node.claim(folder)
        self._node = node.name_of(folder)
        # Empty: the workers know what they write there. They live as long as this process.
        for name in SHARED_MEMORY:
            self._shared[f"{name}_fd"] = os.memfd_create(f"sluice-{name}", os.MFD_CLOEXEC)
        workers = settings.server.workers or len(os.sched_getaffinity(0))
        relay = listeners.bind("server", settings.server.host, settings.server.port, workers)
        self._slots = [Slot(number, listener) for number, listener in enumerate(relay)]
        if settings.hub.enabled and self._hub_command:
            hub = listeners.bind("hub", settings.hub.host, settings.hub.port)[0]
            self._hub = Companion("hub", self._hub_command, self._orders(), hub)
            self._companions.append(self._hub)
        if settings.ops.enabled:
            ops = listeners.bind("ops", settings.ops.host, settings.ops.port)[0]
            self._ops = ops_server.OpsServer(self._selector, ops, self._routes(), self._guard)
        _raise_descriptor_limit()
        self._watch_signals()
        self._log.info(
            "gateway started",
            node=self._node,
            pid=os.getpid(),
            relay=f"{settings.server.host}:{settings.server.port}",
            workers=workers,
        )

    def _watch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # the byte in the pipe is what counts

        def read() -> None:
            for number in os.read(reader, 4096):
                self._on_signal(number)

        self._selector.register(reader, selectors.EVENT_READ, read)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._on_reload()
        elif number in (signal.SIGTERM, signal.SIGINT):
            if not self._draining:
                self._drain(signal.Signals(number).name)
            elif time.monotonic() - self._draining_since > SECOND_SIGNAL_S:
                self._stop("a second signal")

    # ---- workers ---------------------------------------------------------------------------------

    def _workers(self) -> Iterator[Worker]:
        for slot in self._slots:
            yield from filter(None, (slot.worker, slot.successor))
        yield from self._leaving

    def _tend(self, now: float) -> None:
        """Clean up after dead workers, start those that are due, stop those whose time is over."""
        self._read_states(now)
        for worker in list(self._workers()):
            if worker.exit_code is not None:
                self._reap(worker, now)
            else:
                worker.enforce(now)
        if not self._draining:
            for slot in self._slots:
                if slot.worker is None and now >= slot.start_at:
                    slot.worker = self._new_worker(slot)
                    slot.start_at = now + TICK_S  # the next try when it could not be started
        for companion in self._companions:
            companion.tend(now, self._companion_died)
        if self._ops:
            self._ops.sweep(now)

    def _read_states(self, now: float) -> None:
        for worker in list(self._workers()):
            worker.read_state(now)
            self._ever_ready = self._ever_ready or worker.was_ready
            slot = self._slots[worker.slot]
            if slot.successor is worker and worker.was_ready:
                self._succeed(slot, worker)

    def _wait_s(self, now: float) -> float:
        if self._draining or not all(worker.was_ready for worker in self._workers()):
            return CHANGE_TICK_S
        due = [slot.start_at for slot in self._slots if slot.worker is None]
        return max(0.0, min([TICK_S, *(at - now for at in due)]))

    def _new_worker(self, slot: Slot) -> Worker | None:
        start = {**self._orders(), "node": self._node}
        try:
            worker = Worker(self._worker_command, slot.number, slot.listener, start, self._shared)
        except OSError as error:
            self._log.error("worker failed to start", slot=slot.number, error=str(error))
            return None

        self._log.info("worker started", slot=slot.number, worker=worker.pid)
        return worker

    def _orders(self) -> dict[str, object]:
        """What every process is told first."""
        return {
            "settings": to_plain(self._loaded.settings),
            "secrets_path": str(self._loaded.secrets_path),
            "origins": dict(self._loaded.origins),
        }

    def _reap(self, worker: Worker, now: float) -> None:
        code = worker.exit_code or 0
        worker.close()
        slot = self._slots[worker.slot]
        if worker.leaving:
            self._failed |= worker.forced or (worker.was_ready and code != 0)
            self._log.info("worker ended", slot=slot.number, worker=worker.pid, **_ended_by(code))
        if worker in self._leaving:
            self._leaving.remove(worker)
        elif worker is slot.successor:
            slot.successor = None
            self._log.error("reload failed: new worker died", slot=slot.number, **_ended_by(code))
        elif self._draining:
            slot.worker = None
        elif code == CONFIG_REFUSED and not self._ever_ready:
            slot.worker = None
            self._log.error("worker refused to start; its reason is logged above")
            self._failed = True
            self._drain("refused start")
        else:
            delay_s = slot.died(worker, now)
            self._log.error(
                "worker died",
                slot=slot.number,
                worker=worker.pid,
                **_ended_by(code),
                next_in_s=delay_s,
            )

    def _companion_died(self, name: str, code: int) -> None:
        self._log.error(f"{name} died", **_ended_by(code))

    # ---- ends ------------------------------------------------------------------------------------

    def _drain(self, why: str) -> None:
        """No new connections; the workers finish what runs."""
        self._draining = True
        self._draining_since = time.monotonic()
        node.tell_draining(self._lock)
        limit_s = self._loaded.settings.server.drain_timeout_s
        self._log.info("gateway draining", because=why, at_most_s=limit_s)
        # the workers hold the sockets still: with the last of them new clients are refused
        listeners.close_all([slot.listener for slot in self._slots])
        for worker in self._workers():
            if not worker.leaving:
                worker.drain(limit_s + self._drain_margin_s)

    def _stop(self, why: str) -> None:
        self._log.warning("gateway stopping at once", because=why)
        self._failed = True
        for worker in self._workers():
            worker.stop()

    # ---- SIGHUP ----------------------------------------------------------------------------------

    def _on_reload(self) -> None:
        """Replace the workers, each by one with the new settings; a bad file changes nothing."""
        if self._draining or self._reload is None:
            return
        try:
            fresh = self._reload()
            secrets.of(fresh)
        except ConfigError as error:
            for fault in error.faults:
                self._log.error("reload refused; current configuration kept", fault=fault)
            return
        for name in _fixed_changes(self._loaded, fresh):
            self._log.warning("reload: setting takes effect after a restart", setting=name)
        self._loaded = fresh
        self._log = Log(fresh.settings.log.level, fresh.settings.log.format)
        self._log.info("reloading")
        if self._hub is not None:
            self._hub.renew(self._orders())
        for slot in self._slots:
            if slot.successor is not None:
                self._retire(slot.successor)
            slot.successor = self._new_worker(slot) if slot.worker is not None else None

    def _succeed(self, slot: Slot, worker: Worker) -> None:
        """The new worker takes calls, so the old one may go."""
        if slot.worker is not None:
            self._retire(slot.worker)
        slot.worker, slot.successor = worker, None

    def _retire(self, worker: Worker) -> None:
        self._leaving.append(worker)
        limit_s = self._loaded.settings.server.drain_timeout_s
        worker.drain(limit_s + self._drain_margin_s)

    # ---- the ops port ----------------------------------------------------------------------------

    def _routes(self) -> ops_server.Routes:
        return {
            ("GET", "/livez"): lambda: (HTTPStatus.OK, {"live": True}),
            ("GET", "/readyz"): self._readyz,
            ("GET", "/status"): self._status,
            ("POST", "/drain"): self._take_out,
        }

    def _guard(self) -> ops_guard.Guard:
        """By the settings in force; but the address stays that of the start until a restart, and
        beyond loopback so does its need of a token."""
        ops, bound = self._loaded.settings.ops, self._bound_ops
        token = ops.token or ("" if is_loopback(bound.host) else bound.token)
        return ops_guard.Guard(frozenset((bound.host.lower(), *ops.hosts)), token)

    def _not_ready_because(self) -> str | None:
        if self._draining or self._out_of_rotation:
            return "draining"
        now = time.monotonic()
        self._read_states(now)
        reasons = [slot.worker.not_ready_because(now) for slot in self._slots if slot.worker]
        if None in reasons:
            return None
        return f"no worker is ready: {reasons[0] if reasons else 'none runs'}"

    def _readyz(self) -> ops_server.Answer:
        reason = self._not_ready_because()
        if reason is None:
            return HTTPStatus.OK, {"ready": True}
        return HTTPStatus.SERVICE_UNAVAILABLE, {"ready": False, "reason": reason}

    def _take_out(self) -> ops_server.Answer:
        self._out_of_rotation = True
        self._log.info("not ready until restart: POST /drain")
        return HTTPStatus.OK, {"ready": False, "reason": "draining"}

    def _status(self) -> ops_server.Answer:
        now = time.monotonic()
        self._read_states(now)
        workers: list[Mapping[str, object]] = [
            {
                "streams": 0,
                "calls": 0,
                **worker.state,
                "pid": worker.pid,
                "slot": worker.slot,
                "leaving": worker.leaving,
                "why": worker.not_ready_because(now) or "",
                "uptime_s": int(now - worker.started_at),
            }
            for worker in self._workers()
        ]
        reason = self._not_ready_because()
        return HTTPStatus.OK, {
            "node": self._node,
            "pid": os.getpid(),
            "ready": reason is None,
            "reason": reason or "",
            "draining": self._draining or self._out_of_rotation,
            "parked": node.parked_in(Path(self._loaded.settings.journal.dir)),
            "streams": sum(_count(worker, "streams") for worker in workers),
            "calls": sum(_count(worker, "calls") for worker in workers),
            "workers": workers,
        }


def _ended_by(code: int) -> dict[str, object]:
    """What a log line says of a process that has ended: its exit code, or the signal's name."""
    return {"exit_code": code} if code >= 0 else {"signal": signal.Signals(-code).name}


def _count(worker: Mapping[str, object], name: str) -> int:
    value = worker[name]
    return value if isinstance(value, int) else 0


def _raise_descriptor_limit() -> None:
    """Each stream needs two descriptors; the workers inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass  # "unlimited" is more than some kernels give; what we have has to do


def _fixed_changes(old: Loaded, new: Loaded) -> list[str]:
    """Changed settings of the supervisor itself: its sockets, slots and lock stay as they are."""
    fixed = {
        "server": ("host", "port", "workers"),
        "journal": ("dir",),
        "hub": ("enabled", "host", "port"),
        "ops": ("enabled", "host", "port"),
    }
    was, now = to_plain(old.settings), to_plain(new.settings)
    return [
        f"{section}.{key}"
        for section, keys in fixed.items()
        for key in keys
        if was[section][key] != now[section][key]
    ]


def main(args: Sequence[str]) -> int:
    """`serve` without click: the exit code."""
    options = _parse(args)
    if options is None:
        sys.stderr.write(f"{USAGE}\nTry 'sluice serve --help' for help.\n")
        return 2
    companions = []
    if options.demo_port:
        command = [sys.executable, APP, "demo", "--port", options.demo_port, "--watch-stdin"]
        companions.append(Companion("demo vendor", command))
    try:
        path = find_config(Path(options.config) if options.config else None, os.environ)

        def read() -> Loaded:
            return load(path, options.overrides, os.environ)

        loaded = read()
        secrets.of(loaded)
        Log(loaded.settings.log.level, loaded.settings.log.format).take_uncaught()
        supervisor = Supervisor(
            loaded,
            [sys.executable, APP, "worker"],
            companions=companions,
            hub_command=[sys.executable, APP, "hub"],
            reload=read,
        )
        return supervisor.run(options.welcome)
    except ConfigError as error:
        sys.stderr.write("".join(f"{line}\n" for line in error.lines))
        return CONFIG_REFUSED
    except PortTaken as error:
        sys.stderr.write(
            f"error: {error}; {_other_port(error, quickstart=bool(options.welcome_fd))}\n"
        )
        return 1
    except StartError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _other_port(taken: PortTaken, *, quickstart: bool) -> str:
    """How to choose another port, as whoever started the gateway can say it."""
    if not quickstart:
        return f"free it, or choose another: --set {taken.section}.port=NUMBER"
    free = OTHER_PORT if taken.port != OTHER_PORT else taken.port + 1
    if taken.section == "server":
        return f"end that one, or choose another: make run PORT={free}"
    variable = f"SLUICE_{taken.section.upper()}__PORT"
    return f"end that one, or choose another: {variable}={taken.port + 1} make run"


class _Options(NamedTuple):
    """The command line of `serve`; quickstart gives a demo vendor's port and, as a descriptor, what
    is printed when the ports are bound."""

    config: str
    overrides: list[str]
    demo_port: str
    welcome_fd: str

    def welcome(self) -> None:
        """Print what quickstart has to say, when it has something."""
        if self.welcome_fd:
            with open(int(self.welcome_fd), "rb", buffering=0) as text:
                sys.stdout.write(text.read(MAX_WELCOME_BYTES).decode())
            sys.stdout.flush()


def _parse(args: Sequence[str]) -> _Options | None:
    """None when it makes no sense."""
    values: dict[str, list[str]] = {
        **{"--config": [], "--set": []},
        **{"--demo-port": [], "--welcome-fd": []},
    }
    rest = list(args)
    while rest:
        name, joined, value = rest.pop(0).partition("=")
        if name not in values or not (joined or rest):
            return None
        values[name].append(value if joined else rest.pop(0))
    last = {name: (given or [""])[-1] for name, given in values.items()}
    return _Options(last["--config"], values["--set"], last["--demo-port"], last["--welcome-fd"])

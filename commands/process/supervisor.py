"""The supervisor: the first process of a gateway. It starts, watches and ends the workers.

Standard library and conf only (a test enforces this): imported modules stay in memory for as long
as the gateway runs. It relays nothing and never touches the store. It has one loop: signals and the
ops port are events of one selector, and the workers' states are read at every turn.
"""

import os
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from commands.process import listeners, node
from commands.process.child import CLOSE_LOOKS, Companion, Slot, Worker
from commands.process.logs import Log, LogFile
from commands.process.metrics import WordReader
from commands.process.node import PortTaken, StartError
from commands.process.notifier import Notifier
from commands.process.ops_answers import OpsAnswers
from commands.process.ops_server import OpsServer
from conf import secrets, version
from conf.configuration import ConfigError, Loaded, find_config, load
from conf.settings import to_plain

# Symbolic links are resolved, so that an upgrade that moves a link does not change the code of this
# process. The last part of the interpreter's path is kept, since it links out of the virtual
# environment.
APP = str(Path(__file__).resolve().parents[2] / "app.py")
PYTHON = str(Path(sys.executable).parent.resolve() / Path(sys.executable).name)

DRAIN_MARGIN_S = 15.0  # in which workers end calls themselves, before the supervisor kills them
TICK_S = 1.0
CHANGE_TICK_S = 0.1  # while workers start or drain, or a socket is closed
CHANGED_AGAIN_S = 30.0  # before changed code is checked again: it may be changed back
OPEN_AGAIN_S = 5.0  # before another try if a socket could not be opened
CONFIG_REFUSED = 3
SHARED_MEMORY = ("limits", "responses", "leases")  # files that workers share

TAKEN_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
SECOND_SIGNAL_S = 1.0  # within it several signals (from a terminal, from make) are one
MAX_WELCOME_BYTES = 65536
OTHER_PORT = 8080

USAGE = "Usage: sluice serve [--config FILE] [--set SECTION.KEY=VALUE]…"


class Supervisor:
    """The supervisor of one gateway. `run` returns the exit code when everything has ended."""

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
        self.loaded = loaded
        self._worker_command = worker_command
        self._companions = list(companions)
        self._hub_command = hub_command
        self._hub: Companion | None = None
        self._reload = reload
        self._drain_margin_s = drain_margin_s
        log = loaded.settings.log
        self.log = Log(log.level, log.format, LogFile(log.file))
        self._notifier = Notifier(os.environ)
        self._selector = selectors.DefaultSelector()
        self.slots: list[Slot] = []
        self._leaving: list[Worker] = []
        self.draining = False
        self._draining_since = 0.0
        self._ever_ready = False
        self._failed = False
        self._answers = OpsAnswers(self)
        self._ops: OpsServer | None = None
        self.node = ""
        self._shared: dict[str, int] = {}
        self._build = version.build_id()
        self._run = os.urandom(16).hex()  # shared by its workers and its Hub, unique to this run
        self.revision = version.revision(self._build)

    @property
    def hub_is_up(self) -> bool | None:
        """Return whether the Hub answers; None if it is not enabled."""
        return None if self._hub is None else self._hub.is_up

    def run(self, started: Callable[[], None] | None = None) -> int:
        """Run until a signal ends the gateway. Return 0 after a drain, 1 if it had to be forced.

        Raises StartError. `started` is called when the ports are bound.
        """
        self._start()
        if started is not None:
            started()
        while not self.draining or any(self.workers()):
            now = time.monotonic()
            self._tend(now)
            self._notifier.tend(now, self._answers.not_ready_because())
            for key, _ in self._selector.select(self._wait_s(now)):
                key.data()
        if self._ops:
            self._ops.close()
        for companion in self._companions:
            companion.end()
        self.log.info("gateway ended", exit_code=int(self._failed))
        return int(self._failed)

    # ---- start -----------------------------------------------------------------------------------

    def _start(self) -> None:
        settings = self.loaded.settings
        folder = Path(settings.journal.dir)
        self._lock = node.claim(folder)
        self.node = node.name_of(folder)
        # Empty: the workers know their layout. They live as long as this process.
        for name in SHARED_MEMORY:
            self._shared[f"{name}_fd"] = os.memfd_create(f"sluice-{name}", os.MFD_CLOEXEC)
        workers = settings.server.workers or len(os.sched_getaffinity(0))
        relay = listeners.bind("server", settings.server.host, settings.server.port, workers)
        self.slots = [Slot(number, listener) for number, listener in enumerate(relay)]
        if settings.hub.enabled and self._hub_command:
            hub = listeners.bind("hub", settings.hub.host, settings.hub.port)[0]
            self._hub = Companion("hub", self._hub_command, self._orders(), hub)
            self._companions.append(self._hub)
        if settings.ops.enabled:
            ops = listeners.bind("ops", settings.ops.host, settings.ops.port)[0]
            answers = self._answers
            self._ops = OpsServer(self._selector, ops, answers.routes(), answers.guard)
        node.tell_places(folder, to_plain(settings)["ops"], self.loaded.secrets_path)
        _raise_descriptor_limit()
        self._watch_signals()
        self.log.info(
            "gateway started",
            node=self.node,
            pid=os.getpid(),
            revision=self.revision,
            relay=f"{settings.server.host}:{settings.server.port}",
            workers=workers,
        )

    def _watch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (*TAKEN_SIGNALS, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # only the byte in the pipe matters

        def read() -> None:
            for number in os.read(reader, 4096):
                self._on_signal(number)

        self._selector.register(reader, selectors.EVENT_READ, read)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._on_reload()
        elif number == signal.SIGUSR1:
            self.log.reopen()
            self.tell_all({"cmd": "reopen-log"})
        elif number in (signal.SIGTERM, signal.SIGINT):
            if not self.draining:
                self._drain(signal.Signals(number).name)
            elif time.monotonic() - self._draining_since > SECOND_SIGNAL_S:
                self._stop("a second signal")

    def tell_all(self, message: Mapping[str, object]) -> None:
        for worker in self.workers():
            worker.send(message)
        for companion in self._companions:
            companion.tell(message)

    def counts(self) -> Iterator[WordReader]:
        yield from (worker.counts for worker in self.workers())
        yield from (
            companion.counts for companion in self._companions if companion.counts is not None
        )

    # ---- workers ---------------------------------------------------------------------------------

    def workers(self) -> Iterator[Worker]:
        for slot in self.slots:
            yield from filter(None, (slot.worker, slot.successor))
        yield from self._leaving

    def _tend(self, now: float) -> None:
        """Clean up after dead workers, start those that are due, stop those that are over their
        time."""
        self.read_states(now)
        for worker in list(self.workers()):
            if worker.exit_code is not None:
                self._reap(worker, now)
            else:
                self._end_hung(worker)
                worker.enforce(now)
        if not self.draining:
            for slot in self.slots:
                self._shut_or_open(slot, now)
                if slot.worker is None and now >= slot.start_at:
                    self._fill(slot, now)
        for companion in self._companions:
            companion.tend(now, self._companion_died, self._answers.counted)
        if self._ops:
            self._ops.sweep(now)

    def read_states(self, now: float) -> None:
        accepting = set()
        for worker in list(self.workers()):
            if worker.read_state(now):
                accepting.add(worker.slot)
            self._ever_ready = self._ever_ready or worker.was_ready
            slot = self.slots[worker.slot]
            if slot.successor is worker and worker.was_ready:
                self._succeed(slot, worker)
        for slot in self.slots:
            slot.silence.look(now, beaten=slot.number in accepting)

    def _end_hung(self, worker: Worker) -> None:
        """Kill a worker whose loop hangs: SIGTERM needs a loop that turns."""
        if worker.silence.hangs and not worker.hung:
            worker.hung = True
            silent_s = worker.silence.looks
            self.log.error("worker hangs", slot=worker.slot, worker=worker.pid, silent_s=silent_s)
            worker.kill()

    def _shut_or_open(self, slot: Slot, now: float) -> None:
        """Refuse the connections of a slot on which no worker accepts them. A client or proxy then
        tries the next node, or the kernel the next slot."""
        silence = slot.silence
        if not slot.closed and silence.looks >= CLOSE_LOOKS:
            listeners.shut(slot.listener)
            slot.closed = True
            self.log.warning("slot closed: no worker accepts its connections", slot=slot.number)
        elif slot.closed and silence.looks == 0 and now >= slot.open_at:
            try:
                listeners.reopen(slot.listener)
            except OSError as error:
                slot.open_at = now + OPEN_AGAIN_S
                reason = error.strerror or str(error)
                self.log.error("slot cannot be opened", slot=slot.number, error=reason)
                return
            slot.closed = False
            self.log.info("slot opened: a worker accepts its connections", slot=slot.number)

    def _wait_s(self, now: float) -> float:
        if self.draining or not all(worker.was_ready for worker in self.workers()):
            return CHANGE_TICK_S
        if any(slot.closed for slot in self.slots):
            return CHANGE_TICK_S
        due = [slot.start_at for slot in self.slots if slot.worker is None]
        due += [slot.silence.next_look for slot in self.slots]
        return max(0.0, min([TICK_S, *(at - now for at in due)]))

    def _fill(self, slot: Slot, now: float) -> None:
        """Start a worker, unless its code would differ from this process's. If no worker is left,
        the gateway ends, and a service manager starts it with the new code."""
        if not self._code_changed():
            slot.worker = self._new_worker(slot)
            slot.start_at = now + TICK_S  # when to try again if it could not be started
            return
        self.log.error(f"worker not started: {version.CODE_CHANGED}", slot=slot.number)
        slot.start_at = now + CHANGED_AGAIN_S
        if not any(self.workers()):
            self._failed = True
            self._drain(version.CODE_CHANGED)

    def _code_changed(self) -> bool:
        try:
            return version.build_id() != self._build
        except OSError:  # a file is missing
            return True

    def _new_worker(self, slot: Slot) -> Worker | None:
        start = {**self._orders(), "node": self.node}
        try:
            worker = Worker(self._worker_command, slot.number, slot.listener, start, self._shared)
        except OSError as error:
            self.log.error("worker failed to start", slot=slot.number, error=str(error))
            return None

        self.log.info("worker started", slot=slot.number, worker=worker.pid)
        return worker

    def _orders(self) -> dict[str, object]:
        """Return the first orders to a process."""
        settings = to_plain(self.loaded.settings)
        settings["log"]["level"] = self.log.level  # it may have been changed since the start
        return {
            "settings": settings,
            "build": self._build,
            "secrets_path": str(self.loaded.secrets_path),
            "origins": dict(self.loaded.origins),
            "run": self._run,
        }

    def _reap(self, worker: Worker, now: float) -> None:
        code = worker.exit_code or 0
        self._answers.counted(worker.counts)
        worker.close()
        slot = self.slots[worker.slot]
        if worker.leaving:
            self._failed |= worker.forced or (worker.was_ready and code != 0)
            self.log.info("worker ended", slot=slot.number, worker=worker.pid, **_ended_by(code))
        if worker in self._leaving:
            self._leaving.remove(worker)
        elif worker is slot.successor:
            slot.successor = None
            self.log.error("reload failed: new worker died", slot=slot.number, **_ended_by(code))
        elif self.draining:
            slot.worker = None
        elif code == CONFIG_REFUSED and not self._ever_ready:
            slot.worker = None
            self.log.error("worker refused to start; its reason is logged above")
            self._failed = True
            self._drain("refused start")
        else:
            delay_s = slot.died(worker, now)
            self._answers.restarts += 1
            self.log.error(
                "worker died",
                slot=slot.number,
                worker=worker.pid,
                **_ended_by(code),
                next_in_s=delay_s,
            )

    def _companion_died(self, name: str, code: int) -> None:
        self.log.error(f"{name} died", **_ended_by(code))

    # ---- ends ------------------------------------------------------------------------------------

    def _drain(self, why: str) -> None:
        """Stop taking connections and let the workers finish their calls."""
        self.draining = True
        self._draining_since = time.monotonic()
        self._notifier.stopping()
        node.tell_draining(self._lock)
        limit_s = self.loaded.settings.server.drain_timeout_s
        self.log.info("gateway draining", because=why, at_most_s=limit_s)
        # the workers still hold the sockets: clients are refused once the last of them has closed
        # them
        listeners.close_all([slot.listener for slot in self.slots])
        for worker in self.workers():
            if not worker.leaving:
                worker.drain(limit_s + self._drain_margin_s)

    def _stop(self, why: str) -> None:
        self.log.warning("gateway stopping at once", because=why)
        self._failed = True
        for worker in self.workers():
            worker.stop()

    # ---- SIGHUP ----------------------------------------------------------------------------------

    def _on_reload(self) -> None:
        """Replace the workers one by one with new ones that have the new settings. An invalid file
        changes nothing."""
        if self.draining or self._reload is None:
            return
        if self._code_changed():
            self._answers.reloaded(ok=False)
            self.log.error(f"reload refused: {version.CODE_CHANGED}")
            return
        try:
            fresh = self._reload()
            secrets.of(fresh)
        except ConfigError as error:
            self._answers.reloaded(ok=False)
            for fault in error.faults:
                self.log.error("reload refused; current configuration kept", fault=fault)
            return
        for name in _fixed_changes(self.loaded, fresh):
            self.log.warning("reload: setting takes effect after a restart", setting=name)
        self.loaded = fresh
        self._answers.reloaded(ok=True)
        log = fresh.settings.log
        self.log.renew(log.level, log.format, LogFile(log.file))
        self.log.info("reloading")
        if self._hub is not None:
            self._hub.renew(self._orders())
        for slot in self.slots:
            if slot.successor is not None:
                self._retire(slot.successor)
            slot.successor = self._new_worker(slot) if slot.worker is not None else None

    def _succeed(self, slot: Slot, worker: Worker) -> None:
        """Drain the old worker, now that the new one takes calls."""
        if slot.worker is not None:
            self._retire(slot.worker)
        slot.worker, slot.successor = worker, None

    def _retire(self, worker: Worker) -> None:
        self._leaving.append(worker)
        limit_s = self.loaded.settings.server.drain_timeout_s
        worker.drain(limit_s + self._drain_margin_s)


def _ended_by(code: int) -> dict[str, object]:
    """Return the log fields of a process that has ended: its exit code, or the signal's name."""
    return {"exit_code": code} if code >= 0 else {"signal": signal.Signals(-code).name}


def _raise_descriptor_limit() -> None:
    """Raise the limit of descriptors, which workers inherit: each stream needs two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass  # some kernels refuse "unlimited"; continue with the present limit


def _fixed_changes(old: Loaded, new: Loaded) -> list[str]:
    """Return the changed settings that take effect only at a restart: sockets, slots, lock."""
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
    """Run `serve` without click. Return the exit code."""
    options = _parse(args)
    if options is None:
        sys.stderr.write(f"{USAGE}\nTry 'sluice serve --help' for help.\n")
        return 2
    companions = []
    if options.demo_port:
        command = [PYTHON, APP, "demo", "--port", options.demo_port, "--watch-stdin"]
        companions.append(Companion("demo vendor", command))
    try:
        path = find_config(Path(options.config) if options.config else None, os.environ)

        def read() -> Loaded:
            return load(path, options.overrides, os.environ)

        loaded = read()
        secrets.of(loaded)
        supervisor = Supervisor(
            loaded,
            [PYTHON, APP, "worker"],
            companions=companions,
            hub_command=[PYTHON, APP, "hub"],
            reload=read,
        )
        supervisor.log.take_uncaught()
        return supervisor.run(options.welcome)
    except ConfigError as error:
        sys.stderr.write("".join(f"{line}\n" for line in error.lines))
        return CONFIG_REFUSED
    except PortTaken as error:
        advice = _other_port(error, quickstart=bool(options.welcome_fd))
        sys.stderr.write(f"error: {error}; {advice}\n")
        return 1
    except StartError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _other_port(taken: PortTaken, *, quickstart: bool) -> str:
    """Return advice on choosing another port, for `serve` or `quickstart`."""
    if not quickstart:
        return f"free it, or choose another: --set {taken.section}.port=NUMBER"
    free = OTHER_PORT if taken.port != OTHER_PORT else taken.port + 1
    if taken.section == "server":
        return f"end that one, or choose another: make run PORT={free}"
    variable = f"SLUICE_{taken.section.upper()}__PORT"
    return f"end that one, or choose another: {variable}={taken.port + 1} make run"


class _Options(NamedTuple):
    """The command line of `serve`. quickstart adds the port of a demo vendor, and a descriptor with
    the text to print when the ports are bound."""

    config: str
    overrides: list[str]
    demo_port: str
    welcome_fd: str

    def welcome(self) -> None:
        """Print quickstart's text, if there is one."""
        if self.welcome_fd:
            with open(int(self.welcome_fd), "rb", buffering=0) as text:
                sys.stdout.write(text.read(MAX_WELCOME_BYTES).decode())
            sys.stdout.flush()


def _parse(args: Sequence[str]) -> _Options | None:
    """Return the options, or None if they are invalid."""
    names = ("--config", "--set", "--demo-port", "--welcome-fd")
    values: dict[str, list[str]] = {name: [] for name in names}
    rest = list(args)
    while rest:
        name, joined, value = rest.pop(0).partition("=")
        if name not in values or not (joined or rest):
            return None
        values[name].append(value if joined else rest.pop(0))
    last = {name: (texts or [""])[-1] for name, texts in values.items()}
    return _Options(last["--config"], values["--set"], last["--demo-port"], last["--welcome-fd"])

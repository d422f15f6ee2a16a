"""A child process of the supervisor, started by exec and controlled through pipes.

Standard library only. The child's standard input stays open while the supervisor lives: an end of
file there means that the supervisor died, for whatever reason. A worker reports its state in shared
memory, where its event loop also counts its turns; the Hub's loop counts too. A loop that stops
counting hangs (ADR 0034).
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from commands.process.metrics import WordReader
from commands.process.worker_state import StateReader

STOP_S = 2.5  # from the order to stop to SIGKILL: everything has ended within 3 s

EARLY_DEATH_S = 5.0
FIRST_BACK_OFF_S = 0.5
MAX_BACK_OFF_S = 30.0

COMPANION_END_S = 0.4
LOOK_EVERY_S = 1.0
CLOSE_LOOKS = 2  # looks without a beat until a slot's socket is closed
SILENT_LOOKS = 15  # looks without a beat until a process counts as hanging
START_LOOKS = 60  # the same for a process that has just started
DOWN_LOOKS = 3  # looks without a beat until the Hub is reported as down

SMALL: Mapping[str, str] = {"PYTHONMALLOC": "malloc"}
"""The Hub's environment. Python's own allocator returns memory by the mebibyte, and seldom after
large pages. malloc needs 65 MiB instead of 70 after 350 pages from a MariaDB, and a tenth more CPU
(ADR 0047)."""
_OURS = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class BackOff:
    """The delay before a process that died is started again."""

    def __init__(self) -> None:
        self._next_s = FIRST_BACK_OFF_S

    def died(self, lived_s: float) -> float:
        """Return the delay in seconds: 0 after a long life, and longer after each early death."""
        if lived_s >= EARLY_DEATH_S:
            self._next_s = FIRST_BACK_OFF_S
            return 0.0
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, MAX_BACK_OFF_S)
        return delay_s


class Silence:
    """Consecutive looks that found no beat of an event loop. Looks are counted instead of seconds,
    because nothing beats and nothing looks while a machine sleeps."""

    def __init__(self, allowance: int = 0) -> None:
        self.looks = -allowance
        self.next_look = 0.0

    def look(self, now: float, *, beaten: bool) -> None:
        """Record a beat at once, and a missing one LOOK_EVERY_S after the last beat or look."""
        if beaten:
            self.looks = 0
        elif now >= self.next_look:
            self.looks += 1
        else:
            return
        self.next_look = now + LOOK_EVERY_S

    @property
    def hangs(self) -> bool:
        return self.looks >= SILENT_LOOKS


class Child:
    """A running process. Times are of time.monotonic, in seconds."""

    def __init__(
        self,
        command: Sequence[str],
        descriptors: Sequence[int] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        # Ctrl-C and the end of a terminal reach every process of the group, but the supervisor
        # decides what happens. A blocked signal stays blocked over exec, so the child is never
        # exposed to it.
        signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)
        try:
            # Children write to stderr: their stdout would mix with the output of a command.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=descriptors,
                env={**os.environ, **(environ or {})},
                bufsize=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        os.set_blocking(self._stdin.fileno(), False)
        self.pid = self._process.pid
        self.started_at = time.monotonic()

    @property
    def exit_code(self) -> int | None:
        """Return the exit code: None while the process runs, negative if a signal ended it."""
        return self._process.poll()

    def send(self, message: Mapping[str, object]) -> None:
        """Write one line of JSON to its standard input. A child that ended or hangs misses it."""
        try:
            self._stdin.write(json.dumps(message).encode() + b"\n")
        except (BrokenPipeError, BlockingIOError):
            pass

    def close(self) -> None:
        try:
            self._stdin.close()
        except BrokenPipeError:
            pass

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout_s: float) -> None:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass


class Worker(Child):
    """A relay worker. The supervisor owns its listening socket and the memory files that all
    workers share: `shared`, by their names in the worker's orders."""

    def __init__(
        self,
        command: Sequence[str],
        slot: int,
        listener: socket.socket,
        start: Mapping[str, object],
        shared: Mapping[str, int],
    ) -> None:
        self.slot = slot
        self.state: Mapping[str, object] = {}
        self.was_ready = False
        self.leaving = False
        self.forced = False
        self.silence = Silence(START_LOOKS - SILENT_LOOKS)
        self.hung = False  # it was killed because it hung
        self._stop_at: float | None = None
        self._kill_at: float | None = None
        self._reader = StateReader()
        self.counts = WordReader()
        ours = {
            "listen_fd": listener.fileno(),
            "state_fd": self._reader.descriptor,
            "metrics_fd": self.counts.descriptor,
            **shared,
        }
        try:
            super().__init__(command, tuple(ours.values()))
        except OSError:
            self._reader.close()
            self.counts.close()
            raise
        self.send({**start, "slot": slot, **ours})

    def close(self) -> None:
        super().close()
        self._reader.close()
        self.counts.close()

    def read_state(self, now: float) -> bool:
        """Read the state that the worker has written since the last call. Return whether its loop
        accepts connections."""
        beaten = self._reader.beaten()
        self.silence.look(now, beaten=beaten)
        state = self._reader.read()
        if state is not None:
            self.state = state
            self.was_ready = self.was_ready or state.get("ready") is True
        return beaten and not self.leaving

    def not_ready_because(self) -> str | None:
        """Return why the worker takes no calls, or None if it takes them."""
        if not self.state:
            return "starting"
        if self.silence.looks >= CLOSE_LOOKS:
            return f"its loop has been silent for {self.silence.looks} s"
        if self.state.get("ready") is True:
            return None
        return str(self.state.get("why") or "not ready")

    def drain(self, limit_s: float) -> None:
        """Let the worker finish its calls and end. It is stopped after `limit_s` seconds."""
        self.leaving = True
        self._stop_at = time.monotonic() + limit_s
        self.send({"cmd": "drain"})

    def stop(self) -> None:
        """End the worker within 3 s."""
        if self._kill_at is None:
            self.leaving = self.forced = True
            self._kill_at = time.monotonic() + STOP_S
            self.send({"cmd": "stop"})

    def enforce(self, now: float) -> None:
        """Stop or kill the worker when its time to drain or to stop is over."""
        if self._stop_at is not None and now >= self._stop_at:
            self.stop()
        if self._kill_at is not None and now >= self._kill_at:
            self.kill()


class Slot:
    """A socket that outlives its workers, the worker on it, and the time to start the next one.

    `silence` counts across all workers that use the socket in turn. A closed socket refuses
    connections but keeps its descriptors, so a worker that hung can use it again.
    """

    def __init__(self, number: int, listener: socket.socket) -> None:
        self.number = number
        self.listener = listener
        self.worker: Worker | None = None
        self.successor: Worker | None = None  # set from a reload until it is ready
        self.start_at = 0.0
        # Connections that arrive while the first worker starts wait in the socket's queue.
        self.silence = Silence(START_LOOKS - SILENT_LOOKS)
        self.closed = False
        self.open_at = 0.0  # time of the next try if it could not be opened
        self._back_off = BackOff()

    def died(self, worker: Worker, now: float) -> float:
        """Record that the worker ended unexpectedly. Return the seconds until the next one
        starts."""
        delay_s = self._back_off.died(now - worker.started_at)
        self.silence.looks = max(0, self.silence.looks)
        self.worker = None
        self.start_at = now + delay_s
        return delay_s


class Companion:
    """A child that is kept running in addition to the workers: the demo vendor or the Hub.

    It receives `orders` first. Its listening socket, if any, outlives it. If it has one, its loop
    beats each second: after SILENT_LOOKS without a beat it is killed and started again.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        orders: Mapping[str, object] | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        self.name = name
        self._orders = orders
        self._command = command
        self._listener = listener
        self._renewed = False
        self._child: Child | None = None
        self._back_off = BackOff()
        self._start_at = 0.0
        self._reader: StateReader | None = None
        self.counts: WordReader | None = None  # only of a companion with a socket
        self._answered = False  # it has beaten since its start
        self._silence = Silence()

    def tell(self, message: Mapping[str, object]) -> None:
        """Send a line to the companion if it takes orders."""
        if self._child is not None and self._orders is not None:
            self._child.send(message)

    @property
    def is_up(self) -> bool:
        """Return whether a companion with a socket runs and its loop turns."""
        return self._child is not None and self._answered and self._silence.looks < DOWN_LOOKS

    def tend(
        self, now: float, died: Callable[[str, int], None], counted: Callable[[WordReader], None]
    ) -> None:
        """Start the companion if it is not running and its start is due. When it has ended, call
        `died(name, exit code)`, and `counted` with the memory of its metrics."""
        self._look(now)
        if self._child is not None and (code := self._child.exit_code) is not None:
            if self.counts is not None:
                counted(self.counts)
            if not self._renewed:
                died(self.name, code)
                self._start_at = now + self._back_off.died(now - self._child.started_at)
            self._renewed = False
            self._child.close()
            self._close_readers()
            self._child = None
        if self._child is None and now >= self._start_at:
            try:
                self._child = self._started()
            except OSError as error:
                died(self.name, error.errno or 0)
                self._start_at = now + MAX_BACK_OFF_S

    def _look(self, now: float) -> None:
        """Kill the companion if it runs but hangs."""
        if self._child is None or self._reader is None:
            return
        beaten = self._reader.beaten()
        self._answered = self._answered or beaten
        self._silence.look(now, beaten=beaten)
        if self._silence.hangs:
            self._child.kill()

    def _close_readers(self) -> None:
        for reader in (self._reader, self.counts):
            if reader is not None:
                reader.close()
        self._reader = self.counts = None

    def renew(self, orders: Mapping[str, object]) -> None:
        """Restart the companion with other orders."""
        self._orders = orders
        if self._child is not None and self._child.exit_code is None:
            self._renewed = True
            self._child.terminate()

    def _started(self) -> Child:
        if self._listener is None:
            child = Child(self._command)
            ours: Mapping[str, object] = {}
        else:
            self._close_readers()
            self._reader, self.counts = StateReader(), WordReader()
            self._silence = Silence(START_LOOKS - SILENT_LOOKS)
            self._answered = False
            names = ("listen_fd", "state_fd", "metrics_fd")
            listener = self._listener.fileno()
            descriptors = (listener, self._reader.descriptor, self.counts.descriptor)
            ours = dict(zip(names, descriptors, strict=True))
            child = Child(self._command, descriptors, SMALL)
        if self._orders is not None:
            child.send({**self._orders, **ours})
        return child

    def end(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child.terminate()
            self._child.wait(COMPANION_END_S)
            self._child.kill()
            self._child.wait(COMPANION_END_S)

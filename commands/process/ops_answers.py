"""The answers of the ops port: liveness, readiness, state, metrics, log level, drain.

Standard library, conf and the supervisor's modules only.
"""

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from commands.process import metrics, node
from commands.process.child import SILENT_LOOKS, Slot, Worker
from commands.process.logs import LEVELS, Log
from commands.process.ops_server import Answer, Guard, Routes, Text
from conf import metrics as names
from conf.configuration import Loaded
from conf.store_url import place
from conf.values import is_loopback
from conf.version import VERSION


class Gateway(Protocol):
    """The supervisor as the ops port sees it."""

    loaded: Loaded
    draining: bool
    node: str
    revision: str
    log: Log

    @property
    def slots(self) -> Sequence[Slot]: ...

    @property
    def hub_is_up(self) -> bool | None: ...

    def workers(self) -> Iterator[Worker]: ...

    def counts(self) -> Iterator[metrics.WordReader]: ...

    def read_states(self, now: float) -> None: ...

    def tell_all(self, message: Mapping[str, object]) -> None: ...


class OpsAnswers:
    """The routes of the ops port and their state."""

    def __init__(self, gateway: Gateway) -> None:
        self.restarts = 0
        self._gateway = gateway
        self._bound = gateway.loaded.settings.ops  # the settings in force when its port was bound
        self._out_of_rotation = False  # after POST /drain: not ready, but everything else continues
        self._totals = metrics.Totals()
        self._reload_ok = True
        self._reloaded_at = time.time()
        # Kept when the worker that has seen it ends: another looks every 10 s.
        self._done: dict[str, int] = {}  # job -> its last success, ms
        self._upkeep = (0.0, False)  # when its last run ended, and whether well

    def routes(self) -> Routes:
        return {
            ("GET", "/livez"): self._livez,
            ("GET", "/readyz"): self._readyz,
            ("GET", "/status"): self._status,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/log-level"): self._level,
            ("PUT", "/log-level"): self._set_level,
            ("POST", "/drain"): self._take_out,
        }

    def guard(self) -> Guard:
        """Return the guard by the current settings. The address, and whether a token is needed
        beyond loopback, are those of the start."""
        ops, bound = self._gateway.loaded.settings.ops, self._bound
        token = ops.token or ("" if is_loopback(bound.host) else bound.token)
        return Guard(frozenset((bound.host.lower(), *ops.hosts)), token)

    def counted(self, counts: metrics.WordReader) -> None:
        self._totals.ended(counts)

    def reloaded(self, *, ok: bool) -> None:
        self._reload_ok = ok
        if ok:
            self._reloaded_at = time.time()

    def _livez(self, body: bytes) -> Answer:
        """Answer 503 if every slot hangs, except during a drain, which empties slots."""
        self._gateway.read_states(time.monotonic())
        hang = all(slot.silence.hangs for slot in self._gateway.slots)
        if hang and not self._gateway.draining:
            reason = f"no worker has accepted connections for {SILENT_LOOKS} s"
            return HTTPStatus.SERVICE_UNAVAILABLE, {"live": False, "reason": reason}
        return HTTPStatus.OK, {"live": True}

    def not_ready_because(self) -> str | None:
        if self._gateway.draining or self._out_of_rotation:
            return "draining"
        now = time.monotonic()
        self._gateway.read_states(now)
        running = [slot.worker for slot in self._gateway.slots if slot.worker]
        reasons = [worker.not_ready_because() for worker in running]
        if None in reasons:
            return None
        return f"no worker is ready: {reasons[0] if reasons else 'none runs'}"

    def _readyz(self, body: bytes) -> Answer:
        reason = self.not_ready_because()
        if reason is None:
            return HTTPStatus.OK, {"ready": True}
        return HTTPStatus.SERVICE_UNAVAILABLE, {"ready": False, "reason": reason}

    def _take_out(self, body: bytes) -> Answer:
        self._out_of_rotation = True
        self._gateway.log.info("not ready until restart: POST /drain")
        return HTTPStatus.OK, {"ready": False, "reason": "draining"}

    def _status(self, body: bytes) -> Answer:
        now, gateway = time.monotonic(), self._gateway
        gateway.read_states(now)
        workers: list[Mapping[str, object]] = [
            {
                "streams": 0,
                "calls": 0,
                **worker.state,
                "pid": worker.pid,
                "slot": worker.slot,
                "leaving": worker.leaving,
                "why": worker.not_ready_because() or "",
                "uptime_s": int(now - worker.started_at),
            }
            for worker in gateway.workers()
        ]
        reason = self.not_ready_because()
        return HTTPStatus.OK, {
            "node": gateway.node,
            "store": place(gateway.loaded.settings.store.url),
            "version": VERSION,
            "revision": gateway.revision,
            "pid": os.getpid(),
            "ready": reason is None,
            "reason": reason or "",
            "draining": gateway.draining or self._out_of_rotation,
            "parked": node.parked_in(Path(gateway.loaded.settings.journal.dir)),
            "streams": sum(_count(worker, "streams") for worker in workers),
            "calls": sum(_count(worker, "calls") for worker in workers),
            **self._measured(),
            "clock_lead_s": self._clock_lead_s(),
            "limits_up": self._limits_up(),
            "workers": workers,
        }

    def _clock_lead_s(self) -> float | None:
        """Return the lead of the node's clock over the database's, as the oldest worker has
        measured it; None before a worker has reached the store."""
        states = (worker.state.get("clock_lead_ms") for worker in self._gateway.workers())
        return next((lead / 1000 for lead in states if isinstance(lead, int)), None)

    def _limits_up(self) -> bool | None:
        """Return whether Redis counts limits for all workers; None if it is not set up."""
        states = [worker.state.get("limits_up") for worker in self._gateway.workers()]
        ups = [up for up in states if isinstance(up, bool)]
        return all(ups) if ups else None

    def _measured(self) -> dict[str, object]:
        """Return percentiles over all workers since the start of the node."""
        totals, ms = self._totals.read(self._gateway.counts()), metrics.percentile_ms
        return {
            name: {f"p{percent}": ms(totals, metric, percent) for percent in (50, 99)}
            for name, metric in (("overhead_ms", names.OVERHEAD), ("loop_lag_ms", names.LOOP_LAG))
        }

    def _level(self, body: bytes) -> Answer:
        configured = self._gateway.loaded.settings.log.level
        return HTTPStatus.OK, {"level": self._gateway.log.level, "configured": configured}

    def _set_level(self, body: bytes) -> Answer:
        """Set the level from `{"level": "debug"}` or the word alone."""
        level = _level_in(body)
        if level is None:
            remedy = f'PUT {{"level": "…"}}, one of {", ".join(LEVELS)}'
            return HTTPStatus.BAD_REQUEST, {"error": remedy}
        self._gateway.log.level = level
        self._gateway.tell_all({"cmd": "log-level", "level": level})
        self._gateway.log.warning("log level changed until the next reload", to=level)
        return self._level(body)

    def _metrics(self, body: bytes) -> Answer:
        totals = self._totals.read(self._gateway.counts())
        return HTTPStatus.OK, Text(metrics.CONTENT_TYPE, metrics.text_of(totals, self._own()))

    def _own(self) -> Iterator[metrics.Sample]:
        now, gateway = time.monotonic(), self._gateway
        gateway.read_states(now)
        ready = [worker for worker in gateway.workers() if worker.not_ready_because() is None]
        yield names.RESTARTS, (), self.restarts
        yield names.WORKERS_READY, (), len(ready)
        yield names.RELOAD_OK, (), int(self._reload_ok)
        yield names.RELOAD_AT, (), self._reloaded_at
        yield names.DRAINING, (), int(gateway.draining or self._out_of_rotation)
        if gateway.hub_is_up is not None:
            yield names.HUB_UP, (), int(gateway.hub_is_up)
        yield names.RECORDS_PARKED, (), node.parked_in(Path(gateway.loaded.settings.journal.dir))
        yield from self._ages()
        if (lead_s := self._clock_lead_s()) is not None:
            yield names.CLOCK_LEAD, (), lead_s
        if (up := self._limits_up()) is not None:
            yield names.LIMITS_BACKEND_UP, (), int(up)
        yield from self._last_upkeep()
        yield names.BUILD_INFO, (VERSION, platform.python_version(), gateway.revision), 1

    def _ages(self) -> Iterator[metrics.Sample]:
        """Yield the time since each job that operators start last succeeded, as far as any worker
        has seen it in store.upkeep.lease.last_done. A job that never did is omitted."""
        for worker in self._gateway.workers():
            done = worker.state.get("last_done")
            for job, at_ms in done.items() if isinstance(done, dict) else ():
                self._done[job] = max(at_ms, self._done.get(job, 0))
        for metric, job in ((names.BACKUP_AGE, "backup"), (names.BOOKS_VERIFY_AGE, "books_verify")):
            if job in self._done:
                yield metric, (), max(0.0, round(time.time() - self._done[job] / 1000, 1))

    def _last_upkeep(self) -> Iterator[metrics.Sample]:
        """Yield the result of the last run of the upkeep that a worker has seen in
        store.upkeep.lease.to_public; nothing before a run."""
        for worker in self._gateway.workers():
            run = worker.state.get("upkeep")
            if isinstance(run, dict) and run["ended_at"]:
                at_s = datetime.fromisoformat(str(run["ended_at"])).timestamp()
                self._upkeep = max(self._upkeep, (at_s, run["trouble"] is None))
        at_s, ok = self._upkeep
        if at_s:
            yield names.UPKEEP_AT, (), at_s
            yield names.UPKEEP_OK, (), int(ok)


def _level_in(body: bytes) -> str | None:
    """Return the level that the body of a PUT names, or None."""
    word = body.decode("utf-8", "replace").strip()
    try:
        document = json.loads(word)
    except ValueError:
        document = word
    level = document.get("level") if isinstance(document, dict) else document
    return level if isinstance(level, str) and level in LEVELS else None


def _count(worker: Mapping[str, object], name: str) -> int:
    value = worker[name]
    return value if isinstance(value, int) else 0

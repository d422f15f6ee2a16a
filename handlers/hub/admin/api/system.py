"""The state of this node and of the store, and the configuration in force.

The workers belong to another process, the supervisor; its ops port tells of them. When it does not
answer, that is said, and what the Hub knows itself is shown.
"""

import json
import platform
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import peewee
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from handlers.hub.admin.api.base import AdminApi, actor_of
from handlers.hub.admin.api.hours import Hour, last_hours
from handlers.hub.web.base import Failure, HubHandler
from handlers.hub.web.site import Site
from operations import shown_settings
from store.calls.usage_stats import CLASSES
from store.db import audit, migrate, nodes
from store.db.database import is_mysql, place
from store.db.partitions import next_day
from store.values.ids import day_begin_ms
from store.values.usage_record import rfc3339

OPS_CONNECT_S = 1.0
OPS_ANSWER_S = 2.0
TIMED_OUT = 599  # what Tornado's client calls it
_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
_WORKER = (
    *("slot", "pid", "ready", "why", "leaving", "uptime_s", "streams", "calls", "connections"),
    *("store", "journal_backlog_bytes", "open_breakers"),
)


async def state(handler: HubHandler, known: Sequence[Hour]) -> dict[str, Any]:
    """All of it, as scripts see it."""
    site = handler.site
    return {
        "version": site.version,
        "python": platform.python_version(),
        "hub_uptime_s": int(time.monotonic() - site.started_s),
        **await node(site),
        "store": await handler.store(_store),
        "hours": [_hour(one) for one in known],
        "settings": shown_settings.rows(site.settings, site.origins),
    }


async def node(site: Site) -> dict[str, Any]:
    """What the ops port tells of this node; `node` None and `problem` when it does not."""
    try:
        told = json.loads(await _ask(site, "GET", "/status"))
        workers = [{name: one.get(name) for name in _WORKER} for one in told["workers"]]
        named = {name: told[name] for name in ("node", "ready", "reason", "draining", "parked")}
    except _Silent as error:
        return {"node": None, "problem": str(error), "workers": []}
    except (ValueError, KeyError, TypeError, AttributeError):
        problem = "what answers on the ops port is no gateway of this version"
        return {"node": None, "problem": problem, "workers": []}
    return {
        **named,
        "problem": None,
        "streams": told.get("streams"),
        "calls": told.get("calls"),
        **{name: told.get(name) for name in ("overhead_ms", "loop_lag_ms")},
        "journal_backlog_bytes": sum(one["journal_backlog_bytes"] or 0 for one in workers),
        "workers": workers,
    }


async def drain(handler: HubHandler) -> str | None:
    """Take this node out of rotation until it is started again; why not, None when it is done."""
    try:
        await _ask(handler.site, "POST", "/drain")
    except _Silent as error:
        return str(error)
    told = await node(handler.site)
    act = audit.Act(actor_of(handler), "drain", "node", str(told["node"] or "this node"))
    await handler.store(audit.write_alone, act)
    return None


class _Silent(Exception):
    """The ops port does not answer; the message says why."""


async def _ask(site: Site, method: str, path: str) -> bytes:
    """The answer of the ops port. Raises _Silent."""
    ops = site.settings.ops
    if not ops.enabled:
        raise _Silent("the ops port is switched off (ops.enabled)")
    host = _LOCAL.get(ops.host, f"[{ops.host}]" if ":" in ops.host else ops.host)
    try:
        answer = await AsyncHTTPClient().fetch(
            f"http://{host}:{ops.port}{path}",
            method=method,
            body="" if method == "POST" else None,
            headers={"Authorization": f"Bearer {ops.token}"} if ops.token else {},
            connect_timeout=OPS_CONNECT_S,
            request_timeout=OPS_ANSWER_S,
            follow_redirects=False,
        )
    except HTTPClientError as error:
        did = "does not answer in time" if error.code == TIMED_OUT else f"answers {error.code}"
        raise _Silent(f"the ops port {host}:{ops.port} {did}") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise _Silent(f"the ops port {host}:{ops.port} does not answer: {why}") from None
    return bytes(answer.body)


def _hour(hour: Hour) -> dict[str, Any]:
    return {
        "at": rfc3339(hour.at_ms),
        "calls": hour.calls,
        **{name: getattr(hour, name) for name in CLASSES},
        "first_byte_p50_ms": hour.first_byte(50),
        "first_byte_p95_ms": hour.first_byte(95),
    }


def _store(db: peewee.Database) -> dict[str, Any]:
    began = time.perf_counter()
    states = nodes.states(db)
    took_ms = round(1000 * (time.perf_counter() - began), 1)
    oldest = next_day(db, 0)
    return {
        "kind": "mysql" if is_mysql(db) else "sqlite",
        "place": place(db),
        "answer_ms": took_ms,
        "pending_migrations": migrate.pending(db),
        "records_since": None if oldest is None else rfc3339(day_begin_ms(oldest)),
        "nodes": [
            {
                "name": node.name,
                "versions": list(node.versions),
                "seen_at": rfc3339(node.seen_ms),
                "here": node.alive,
            }
            for node in states
        ],
    }


class System(AdminApi):
    """GET /api/admin/system."""

    async def get(self) -> None:
        self.answer(await state(self, await self.store(last_hours)))


class Drain(AdminApi):
    """POST /api/admin/system/drain."""

    async def post(self) -> None:
        self.known(self.body())
        if problem := await drain(self):
            raise Failure(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", problem)
        self.answer({"draining": True})

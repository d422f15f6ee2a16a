"""The state of this node and of the store, the configuration in force, and notices.

The workers belong to the supervisor's process, whose ops port reports on them. If it does not
answer, the page says so and shows what the Hub itself knows.
"""

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

import peewee
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from conf.settings import mask, masked_rows
from handlers.hub.admin.system_charts import CHART_HEIGHT, Hour, bar_text, charts_of, last_hours
from handlers.hub.web.admin import ActionPage, AdminApi, AdminPage, ConfirmationPage, path_of
from handlers.hub.web.base import Api, Failure, HubHandler, invalid
from handlers.hub.web.site import Site
from handlers.hub.web.zones import utc_day_text
from operations.alerts.sender import Sender, hub_url
from store.alerts.outbox import Result, mail_of
from store.calls.reading.unpriced import RECENT_DAYS, recent_unpriced
from store.calls.usage_stats import CLASSES
from store.db import audit, migrate, nodes
from store.db.database import is_mysql, place
from store.db.partitions import next_day
from store.hub import notices
from store.values.fields import Instant
from store.values.ids import day_begin_ms
from store.values.texts import mail_address
from store.values.usage_record import rfc3339

OPS_CONNECT_S = 1.0
OPS_ANSWER_S = 2.0
TIMED_OUT = 599  # the status that Tornado's client uses for a timeout
NO_NODE = "–"  # the name to type when the ops port does not answer
_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
_WORKER_FIELDS = (
    *("slot", "pid", "ready", "why", "leaving", "uptime_s", "streams", "calls", "connections"),
    *("store", "journal_backlog_bytes", "open_breakers"),
)
_NODE_FIELDS = ("node", "ready", "reason", "draining", "parked")
NOTICE_FIELDS = ("text", "level", "since", "until")


class _OpsPortSilent(Exception):
    """The ops port does not answer. The message has the reason."""


async def system_state(handler: HubHandler, hours: Sequence[Hour]) -> dict[str, Any]:
    """Return the whole state as JSON."""
    site = handler.site
    return {
        "version": site.version,
        "python": platform.python_version(),
        "hub_uptime_s": int(time.monotonic() - site.started_s),
        **await node_state(site),
        "store": await handler.store(_store_state),
        "unpriced": [asdict(use) for use in await handler.store(recent_unpriced)],
        "hours": [_hour_fields(hour) for hour in hours],
        "settings": masked_rows(site.settings, site.origins),
    }


async def node_state(site: Site) -> dict[str, Any]:
    """Return the node's state as reported by its ops port. If there is none, `node` is None and
    `problem` has the reason."""
    try:
        status = json.loads(await _ask_ops_port(site, "GET", "/status"))
        workers = [
            {name: worker.get(name) for name in _WORKER_FIELDS} for worker in status["workers"]
        ]
        fields = {name: status[name] for name in _NODE_FIELDS}
    except _OpsPortSilent as error:
        return {"node": None, "problem": str(error), "workers": []}
    except (ValueError, KeyError, TypeError, AttributeError):
        problem = "what answers on the ops port is no gateway of this version"
        return {"node": None, "problem": problem, "workers": []}
    return {
        **fields,
        "problem": None,
        "streams": status.get("streams"),
        "calls": status.get("calls"),
        **{name: status.get(name) for name in ("overhead_ms", "loop_lag_ms")},
        "journal_backlog_bytes": sum(row["journal_backlog_bytes"] or 0 for row in workers),
        "workers": workers,
    }


async def drain(handler: HubHandler) -> str | None:
    """Take this node out of rotation until it is restarted. Return the reason if that fails."""
    try:
        await _ask_ops_port(handler.site, "POST", "/drain")
    except _OpsPortSilent as error:
        return str(error)
    state = await node_state(handler.site)
    act = audit.Act(handler.me.user, "drain", "node", str(state["node"] or "this node"))
    await handler.store(audit.write, act)
    return None


async def _ask_ops_port(site: Site, method: str, path: str) -> bytes:
    """Return the answer of the ops port. Raises _OpsPortSilent."""
    ops = site.settings.ops
    if not ops.enabled:
        raise _OpsPortSilent("the ops port is switched off (ops.enabled)")
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
        late = error.code == TIMED_OUT
        problem = "does not answer in time" if late else f"answers {error.code}"
        raise _OpsPortSilent(f"the ops port {host}:{ops.port} {problem}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise _OpsPortSilent(f"the ops port {host}:{ops.port} does not answer: {reason}") from None
    return bytes(answer.body)


def _hour_fields(hour: Hour) -> dict[str, Any]:
    return {
        "at": rfc3339(hour.at_ms),
        "calls": hour.calls,
        **{name: getattr(hour, name) for name in CLASSES},
        "first_byte_p50_ms": hour.first_byte(50),
        "first_byte_p95_ms": hour.first_byte(95),
    }


def _store_state(db: peewee.Database) -> dict[str, Any]:
    begin_s = time.perf_counter()
    states, hanging = nodes.states(db), dict(nodes.hanging(db))
    answer_ms = round(1000 * (time.perf_counter() - begin_s), 1)
    oldest = next_day(db, 0)
    return {
        "kind": "mysql" if is_mysql(db) else "sqlite",
        "place": place(db),
        "answer_ms": answer_ms,
        "pending_migrations": migrate.pending(db),
        "records_since": None if oldest is None else rfc3339(day_begin_ms(oldest)),
        "nodes": [
            {
                "name": node.name,
                "versions": list(node.versions),
                "seen_at": rfc3339(node.seen_ms),
                "here": node.alive,
                "hanging": hanging.get(node.name, 0),
            }
            for node in states
        ],
    }


class SystemApi(AdminApi):
    """GET /api/admin/system."""

    async def get(self) -> None:
        self.answer(await system_state(self, await self.store(last_hours)))


class DrainApi(AdminApi):
    """POST /api/admin/system/drain."""

    async def post(self) -> None:
        self.fields()
        if problem := await drain(self):
            raise Failure(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", problem)
        self.answer({"draining": True})


class CurrentNoticesApi(Api):
    """GET /api/notices."""

    async def get(self) -> None:
        rows = await self.store(notices.current)
        self.answer_list([notices.public(notice) for notice in rows])


class NoticesApi(AdminApi):
    """GET and POST /api/admin/notices."""

    async def get(self) -> None:
        rows = await self.store(notices.listed)
        self.answer_list([notices.public(notice) for notice in rows])

    async def post(self) -> None:
        notice = await self.store(notices.create, self.body(), self.me.user)
        self.answer(notices.public(notice), HTTPStatus.CREATED)


class NoticeApi(AdminApi):
    """DELETE /api/admin/notices/ID."""

    async def delete(self, notice_id: str) -> None:
        await self.store(notices.remove, notice_id, self.me.user)
        self.answer_nothing()


class SystemPage(AdminPage):
    """Gauges, charts, workers, store, configuration and notices."""

    async def get(self) -> None:
        await self.show_system()

    async def show_system(
        self, failure: Failure | None = None, mail_to: str = "", mail_problem: str = ""
    ) -> None:
        """Render the page. `failure`: why a notice was refused; `mail_problem`: why no mail was
        sent to `mail_to`."""
        hours = await self.store(last_hours)
        state = await system_state(self, hours)
        selected = "all" if self.get_query_argument("settings", "") == "all" else "set"
        search = self.get_query_argument("find", "").strip()
        self.show(
            "admin/system.html",
            state=state,
            settings=[
                row
                for row in state["settings"]
                if (selected == "all" or row["origin"] != "default")
                and search.lower() in row["name"]
            ],
            search=search,
            selected=selected,
            notices=await self.store(notices.listed),
            levels=notices.LEVELS,
            ms=Instant().parse,
            day_words=utc_day_text,
            here=path_of("system"),
            RECENT_DAYS=RECENT_DAYS,
            charts=charts_of(hours),
            CHART_HEIGHT=CHART_HEIGHT,
            bar_text=bar_text,
            mail={
                "server": mask(self.site.settings.mail.url),
                "sender": self.site.settings.mail.sender,
                "to": mail_to or await self.store(mail_of, self.me.user_id) or "",
                "problem": mail_problem,
            },
            **self.form_values(NOTICE_FIELDS, failure),
        )


class NoticesPage(ActionPage, SystemPage):
    """Creates and removes notices."""

    plural = "system"

    async def post(self) -> None:
        if notice_id := self.get_body_argument("remove", ""):
            await self.store(notices.remove, notice_id, self.me.user)
            self.done("done_notice_removed", self.back())
            return
        fields = {name: self.get_body_argument(name, "").strip() for name in NOTICE_FIELDS}
        for name in ("since", "until"):
            if len(fields[name]) == len("2027-01-01"):
                fields[name] += "T00:00:00Z"
        try:
            await self.store(notices.create, fields, self.me.user)
        except Failure as failure:
            await self.show_system(failure)
            return
        self.done("done_notice", self.back())


async def send_test_mail(handler: HubHandler, to: str) -> Result:
    """Send a sample by mail. Raises Failure if `to` is no address."""
    try:
        mail_address(to)
    except ValueError as error:
        raise invalid("to", f"to {error}") from None
    settings = handler.site.settings
    sender = Sender(settings.mail, hub_url(settings.hub), handler.site.sealing.cipher)
    return await handler.site.sending(sender.test_mail, to)


class MailTestApi(AdminApi):
    """POST /api/admin/system/mail-test."""

    async def post(self) -> None:
        result = await send_test_mail(self, str(self.fields("to").get("to", "")))
        self.answer({"ok": result.ok, "result": result.text or None, "took_ms": result.took_ms})


class MailTestPage(ActionPage, SystemPage):
    """Sends a sample by mail."""

    plural = "system"

    async def post(self) -> None:
        to = self.get_body_argument("to", "")
        try:
            result = await send_test_mail(self, to)
            problem = "" if result.ok else result.text
        except Failure as failure:
            problem = self.in_words(failure.message)
        if problem:
            self.set_status(HTTPStatus.BAD_REQUEST)
            await self.show_system(mail_to=to, mail_problem=problem)
            return
        seconds = f"{(result.took_ms or 0) / 1000:.2f}"
        self.say(self.words["alerts.done_test"].format(seconds=seconds))
        self.redirect(self.back(), status=HTTPStatus.SEE_OTHER)


class DrainPage(ConfirmationPage):
    """Takes this node out of rotation after its name was typed."""

    async def prepare_question(self) -> None:
        state = await node_state(self.site)
        texts = ("admin.drain_title", "admin.drain_effect", "admin.drain")
        action = path_of("system", action="drain")
        self.ask(texts, state["node"] or NO_NODE, action, path_of("system"))
        self.confirmation.problem = state["problem"] or ""

    async def confirmed(self) -> None:
        if problem := await drain(self):
            raise invalid(None, problem)
        self.done("done_drain", path_of("system"))

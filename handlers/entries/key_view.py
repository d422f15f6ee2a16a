"""GET /v1/usage and /v1/key: what a key can see of itself. The same in the formats that tools read
from new-api (`/api/usage/token`) and LiteLLM (`/key/info`).

These requests leave no usage record, because they call no model. The store is read in threads.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

from adapters.family import Family
from adapters.faults import Condition, Fault
from adapters.json.jsonio import dumps
from adapters.registry import FAMILIES
from handlers.entries.intake import KeyedHandler
from handlers.relay.limits.limits import LimitLevel
from store.catalog.keys import KeyEntry
from store.hub.key_view import KeyView
from store.money.subscriptions import DISABLED, EXPIRED, SpendLimit, to_public
from store.values.errors import StoreError, StoreUnavailable
from store.values.ids import now_ms
from store.values.pricing import NANOS_PER_UNIT, format_money
from store.values.usage_record import rfc3339, rfc3339_or_none

RPM = 60  # for each key, over all workers of the node
READS_MAX = 100  # reads that wait for a thread
READ_WAIT_S = 5.0
QUOTA_PER_UNIT = 500_000  # new-api's, for one unit of the currency
_BUDGET_DURATIONS = {"day": "1d", "week": "7d", "month": "1mo"}  # LiteLLM's words


class KeyViews:
    """The views of keys from the store, read in threads. `look` is view_of, which blocks."""

    def __init__(self, look: Callable[[str, str, int], KeyView], executor: Executor) -> None:
        self._look, self._executor = look, executor
        self._reads = 0

    async def read(self, key: KeyEntry) -> KeyView:
        """Return the current view of the key. Raises StoreError; StoreUnavailable if it takes too
        long."""
        if self._reads >= READS_MAX:
            raise StoreUnavailable("too many keys are being read")
        loop = asyncio.get_running_loop()
        self._reads += 1
        read = loop.run_in_executor(self._executor, self._look, key.id, key.user_id, now_ms())
        read.add_done_callback(self._end)
        await asyncio.wait({read}, timeout=READ_WAIT_S)
        if not read.done():
            raise StoreUnavailable("the store does not answer")
        return read.result()

    def _end(self, read: "asyncio.Future[KeyView]") -> None:
        self._reads -= 1
        if not read.cancelled():
            read.exception()  # otherwise asyncio reports a failure that nothing awaited


class KeyViewHandler(KeyedHandler):
    """The view of the key that sends the request, in the format of the path."""

    ALLOW = "GET, HEAD"
    READS_BODY = False

    @property
    def endpoint(self) -> str:
        return self.request.path

    @property
    def dialect(self) -> Family:
        """Return the family of the caller, by its headers. Tools of other gateways send a Bearer
        token, and may name a key in the query."""
        if self.request.path.startswith("/v1/"):
            return super().dialect
        return FAMILIES["chat_completions"]

    def check_head(self) -> Awaitable[None] | None:
        if self.request.method not in ("GET", "HEAD"):
            raise Fault(Condition.METHOD_NOT_ALLOWED, allow=self.ALLOW)
        return self.check_credential()

    async def complete(self, body: bytes) -> None:
        """Answer with the view, unless the key asks too often."""
        refusal = self.site.relay.limits.pass_one(f"view of key {self._key.id}", RPM)
        if refusal is not None:
            self.answer_fault(refusal)
            return
        assert self.site.key_views is not None
        try:
            view = await self.site.key_views.read(self._key)
        except StoreError:
            self.answer_fault(Fault(Condition.UNAVAILABLE))
            return
        self._levels = await self._read_levels()
        self.respond(dumps(PATHS[self.request.path](self, view)))

    def plain(self, view: KeyView) -> dict[str, Any]:
        """Return the view in the gateway's own format."""
        key, payers = self._key, view.payers
        held = [plan for plan in payers.subscriptions if plan.state not in (EXPIRED, DISABLED)]
        spend = (("key_spend", view.limit), ("user_spend", payers.limit))
        spent = {"today": format_money(view.today_nanos), "month": format_money(view.month_nanos)}
        return {
            "name": key.name,
            "user": key.user,
            "group": key.group,
            "limits": [
                *(_spend_level(name, limit) for name, limit in spend if limit is not None),
                *map(_level, self._levels),
            ],
            "balance": format_money(view.balance_nanos),
            "plans": list(map(to_public, held)),
            "spent": spent,
            "models": self._models(),
            "currency": self.site.settings.money.currency,
        }

    def of_new_api(self, view: KeyView) -> dict[str, Any]:
        """Return the view in the format of new-api's `GET /api/usage/token/`, in units of its
        quota."""
        left, spent = _quota(view.left_nanos), _quota(view.spent_nanos)
        models = self._models() if self._key.models is not None else []
        data = {
            "object": "token_usage",
            "name": self._key.name,
            "total_granted": spent + left,
            "total_used": spent,
            "total_available": left,
            "unlimited_quota": False,
            "model_limits": dict.fromkeys(models, True),
            "model_limits_enabled": self._key.models is not None,
            "expires_at": (self._key.expires_ms or 0) // 1000,
        }
        return {"code": True, "message": "ok", "data": data}

    def of_litellm(self, view: KeyView) -> dict[str, Any]:
        """Return the view in the format of LiteLLM's `GET /key/info`, whose amounts are floats."""
        key, limit = self._key, view.limit
        info = {
            "key_name": view.masked,
            "key_alias": key.name,
            "spend": view.spent_nanos / NANOS_PER_UNIT,
            "max_budget": None if limit is None else limit.limit_nanos / NANOS_PER_UNIT,
            "budget_duration": None if limit is None else _BUDGET_DURATIONS.get(limit.window),
            "budget_reset_at": None if limit is None else rfc3339_or_none(limit.resets_ms),
            "expires": rfc3339_or_none(key.expires_ms),
            "created_at": rfc3339(view.created_ms),
            "models": self._models(),
            "user_id": key.user,
            "team_id": key.group,
            "rpm_limit": key.rpm or None,
            "tpm_limit": key.tpm or None,
            "max_parallel_requests": key.concurrency or None,
            "blocked": False,
        }
        return {"key": view.masked, "info": info}

    def _models(self) -> list[str]:
        snapshot, key = self.site.relay.snapshot, self._key
        names = {model.name for family in FAMILIES for model in snapshot.listed(key, family)}
        return sorted(names)

    async def _read_levels(self) -> list[LimitLevel]:
        limits, key = self.site.relay.limits, self._key
        group = self.site.relay.snapshot.groups.get(key.group)
        if group is None:
            return []
        if limits.remote is not None:
            return await limits.levels_everywhere(key, group)
        return limits.levels(key, group)


PATHS: dict[str, Callable[[KeyViewHandler, KeyView], dict[str, Any]]] = {
    "/v1/usage": KeyViewHandler.plain,
    "/v1/key": KeyViewHandler.plain,
    "/api/usage/token": KeyViewHandler.of_new_api,
    "/api/usage/token/": KeyViewHandler.of_new_api,
    "/key/info": KeyViewHandler.of_litellm,
}


def _spend_level(name: str, limit: SpendLimit) -> dict[str, Any]:
    left = format_money(max(0, limit.limit_nanos - limit.spent_nanos))
    resets_at = rfc3339_or_none(limit.resets_ms)
    allowed = format_money(limit.limit_nanos)
    return {"limit": name, "allowed": allowed, "left": left, "resets_at": resets_at}


def _level(level: LimitLevel) -> dict[str, Any]:
    resets_at = None
    if level.reset_s is not None:
        resets_at = rfc3339(now_ms() + round(level.reset_s * 1000))
    return {
        "limit": level.name,
        "allowed": level.allowed,
        "left": level.left,
        "resets_at": resets_at,
    }


def _quota(nanos: int) -> int:
    return nanos * QUOTA_PER_UNIT // NANOS_PER_UNIT

"""Client set-up: snippets with real values, the base-URL checker, the test call; and their API."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.keys import relay_call
from handlers.hub.keys.relay_call import Answered, Asked
from handlers.hub.keys.shown import WORKING, state_of
from handlers.hub.keys.snippets import Values, panels
from handlers.hub.web.base import Api, Failure, HubHandler, Page
from handlers.hub.web.formats import MONEY_CODES, failure_reason
from handlers.relay.admit import is_within
from operations.base_url_check import Check, check
from operations.client_settings import CLIENTS
from store.calls.usage_queries import Filters, history
from store.catalog.keys import find_key
from store.channels.status import AVAILABLE, DOWN, of_models
from store.hub import own_keys
from store.hub.key_groups import key_groups
from store.hub.own_keys import OwnKey
from store.values import key_secrets
from store.values.ids import now_ms
from store.values.key_secrets import GIVEN_SECRET
from store.values.pricing import format_money

MAX_RUNNING = 4
RECORD_WAIT_S, RECORD_LOOK_S = 3.0, 0.15
NO_SECRET = "sk-slc-…"
RETRY_AFTER_S = 5
RECORD_FIELDS = (
    *("id", "outcome", "status", "error_code", "error_message", "model", "input_tokens"),
    *("output_tokens", "billed_to", "ttft_ms", "duration_ms"),
)

_running: set[str] = set()
"""Users whose test call runs, in this process: one each, and few at a time."""


@dataclass(frozen=True, slots=True)
class Tested:
    """A test call and its usage record, if it left one that is this user's."""

    client: str
    model: str
    answered: Answered
    record: Mapping[str, Any] | None

    @property
    def of_money(self) -> bool:
        """Return whether the wallet says more than the channel status."""
        return self.record is not None and self.record["error_code"] in MONEY_CODES

    def plain(self) -> dict[str, Any]:
        """As JSON says it."""
        answered = self.answered
        return {
            "status": answered.status,
            "request_id": answered.request_id,
            "first_byte_ms": answered.first_byte_ms,
            "total_ms": answered.total_ms,
            "text": answered.text,
            "error": answered.error,
            "record": self.record,
        }


async def test(handler: HubHandler, client: str, model: str, secret: str) -> Tested:
    """Makes a test call for who has signed in. Raises Failure: no such client, no model, no secret
    that could be one, too many calls."""
    assert handler.signed_in is not None
    me = handler.signed_in
    if client not in CLIENTS:
        told = f"client is one of {', '.join(CLIENTS)}"
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "client")
    if not model:
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "model is missing", "model")
    if not GIVEN_SECRET.fullmatch(secret):
        told = "paste the whole secret: 16 to 200 of A-Z a-z 0-9 . _ -"
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "secret")
    if me.user_id in _running or len(_running) >= MAX_RUNNING:
        told = "a test call is running; try again in a few seconds"
        raise Failure(HTTPStatus.TOO_MANY_REQUESTS, "too_many", told, wait_s=RETRY_AFTER_S)
    _running.add(me.user_id)
    try:
        await handler.store(_check_networks, handler, secret)
        asked = Asked(CLIENTS[client].family, model, secret)
        answered = await relay_call.call(handler.site.settings.server, asked)
        call = {"client": client, "status": answered.status, "request_id": answered.request_id}
        await handler.note("test", "model", model, **call)
        record = await _record(handler, me.user, answered.request_id)
    finally:
        _running.discard(me.user_id)
    return Tested(client, model, answered, record)


def _check_networks(db: peewee.Database, handler: HubHandler, secret: str) -> None:
    """Raises Failure for a key that may not be used from where the person is: the relay sees the
    Hub's address instead."""
    peppers = handler.site.sealing.peppers
    key = find_key(db, key_secrets.digests(secret, peppers))
    if key is not None and key.networks and not is_within(handler.address, key.networks):
        told = f"the key may not be used from {handler.address}: its networks do not have it"
        raise Failure(HTTPStatus.FORBIDDEN, "forbidden", told, "secret")


async def _record(
    handler: HubHandler, user: str, request_id: str | None
) -> Mapping[str, Any] | None:
    """The usage record of a call, as soon as it is written."""
    loop = asyncio.get_running_loop()
    until = loop.time() + RECORD_WAIT_S
    while request_id is not None:
        found = await handler.store(own_record, user, request_id)
        if found is not None or loop.time() >= until:
            return found
        await asyncio.sleep(RECORD_LOOK_S)
    return None


def own_record(db: peewee.Database, user: str, call_id: str) -> Mapping[str, Any] | None:
    """What a user may see of one of its calls, in short."""
    rows = history(db, Filters(user=user, request_id=call_id), 1)
    if not rows:
        return None
    return {name: rows[0][name] for name in RECORD_FIELDS} | {
        "cost": format_money(rows[0]["cost_nanos"])
    }


def plain_check(found: Check) -> dict[str, Any]:
    """As JSON says it."""
    return {
        "problem": found.problem,
        "verdicts": [
            {
                "kind": one.kind,
                "rule": one.rule,
                "asks": one.given + one.appended,
                "right": one.right,
                "base_url": one.use,
            }
            for one in found.verdicts
        ],
    }


class Setup(Page):
    """The page; what is chosen stands in its address."""

    async def get(self) -> None:
        await self.page()

    async def page(self, tested: Tested | None = None, failure: Failure | None = None) -> None:
        """Answers with the page, after a test call with what came of it."""
        assert self.signed_in is not None
        at_ms, base_url = now_ms(), self.site.base_url
        keys = await self.store(own_keys.owned, self.signed_in.user_id, at_ms)
        working = [key for key in keys if state_of(key, at_ms, base_url) in WORKING]
        key = next((one for one in working if one.id == self.get_argument("key", "")), None)
        key = key or next(iter(working), None)
        models = await self._models(key)
        model = self.get_argument("model", "")
        model = model if model in models else next(iter(models), "")
        client = self.get_argument("client", "")
        url = self.get_query_argument("url", "")
        secret = f"{key.prefix}…{key.last_four}" if key else NO_SECRET
        self.show(
            "keys/setup.html",
            keys=working,
            key=key,
            models=models,
            model=model,
            client=client if client in CLIENTS else next(iter(CLIENTS)),
            panels=panels(Values(base_url, secret, model or None)),
            state=await self._state(key, model, at_ms),
            url=url,
            checked=check(url, base_url, self.site.settings.hub.public_url) if url else None,
            tested=tested,
            reason=failure_reason,
            failure=failure,
        )

    async def _state(self, key: OwnKey | None, model: str, at_ms: int) -> str:
        """The state of a model in the key's group when it is not available; "" when it is."""
        if key is None or not model:
            return ""
        found = await self.store(of_models, at_ms, [key.group], figures_of=())
        state = next((one.state for one in found if one.model == model), DOWN)  # no channel
        return "" if state == AVAILABLE else state

    async def _models(self, key: OwnKey | None) -> Sequence[str]:
        if key is None:
            return ()
        if key.models:
            return tuple(key.models)
        group = (await self.store(key_groups)).get(key.group)
        return group.models if group else ()


class Test(Setup):
    """Makes a test call, and answers with the page."""

    async def get(self) -> None:
        self.redirect("/setup", status=303)

    async def post(self) -> None:
        arguments = (self.get_body_argument(name, "") for name in ("client", "model", "secret"))
        client, model, secret = (text.strip() for text in arguments)
        try:
            tested = await test(self, client, model, secret)
        except Failure as failure:
            self.set_status(failure.status_code)
            await self.page(failure=failure)
            return
        await self.page(tested)


class ApiCheckUrl(Api):
    """POST /api/setup/check-url: {"url"}."""

    change_scope = "read"  # it changes nothing

    async def post(self) -> None:
        url = self.body().get("url")
        if not isinstance(url, str) or not url.strip():
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "url is missing", "url")
        found = check(url, self.site.base_url, self.site.settings.hub.public_url)
        self.answer(plain_check(found))


class ApiTest(Api):
    """POST /api/setup/test: {"secret", "model", "client"}."""

    async def post(self) -> None:
        body = self.body()
        words = {name: body.get(name, "") for name in ("client", "model", "secret")}
        for name, word in words.items():
            if not isinstance(word, str):
                raise Failure(HTTPStatus.BAD_REQUEST, "invalid", f"{name} must be a string", name)
        words["client"] = words["client"] or "curl"
        self.answer((await test(self, **words)).plain())

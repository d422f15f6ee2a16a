"""Client set-up: snippets with real values, the check of a base URL, the test call; pages and their
JSON API.

A test call is a real one, to the relay's own address and nowhere else, with a secret of its owner;
it is authenticated, charged and recorded as any other. The secret is not stored.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import peewee
from tornado.httpclient import HTTPError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from conf.settings import ServerSettings
from handlers.client_address import is_within
from handlers.hub.keys.keys import WORKING, state_of
from handlers.hub.web.base import Api, Failure, HubHandler, Page, invalid, or_refused
from handlers.hub.web.formats import failure_reason
from operations.base_url_check import KINDS, Check, Kind, check
from operations.client_settings import CLIENTS, FILE, Client, base_url, sample_request, setups
from store.calls.usage_queries import Filters, history
from store.catalog.keys import find_key
from store.channels.status import AVAILABLE, DOWN, of_models
from store.hub import own_keys
from store.hub.membership import key_groups
from store.hub.own_keys import OwnKey
from store.values import key_secrets
from store.values.ids import now_ms
from store.values.key_secrets import GIVEN_SECRET
from store.values.pricing import format_money
from store.values.usage_record import MONEY_CODES

MAX_RUNNING = 4
RECORD_WAIT_S, RECORD_LOOK_S = 3.0, 0.15
NO_SECRET = "sk-slc-…"
RETRY_AFTER_S = 5
RECORD_FIELDS = (
    *("id", "outcome", "status", "error_code", "error_message", "model", "input_tokens"),
    *("output_tokens", "billed_to", "ttft_ms", "duration_ms"),
)
MAX_BODY_BYTES = 64 * 1024
MAX_TEXT_CHARS = 2000
MAX_TOKENS = 200
CONNECT_TIMEOUT_S = 5
TIMEOUT_S = 90
AGENT = "sluice-hub-test"

_running: set[str] = set()
"""Users with a running test call, in this process: one each, and few at a time."""

# ---- snippets ------------------------------------------------------------------------------------

Piece = tuple[str, str]
"""A class of the style sheet, "" for none, and a text."""


@dataclass(frozen=True, slots=True)
class MarkedSnippet:
    """A snippet cut into pieces."""

    title: str
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class ClientPanel:
    """A client with its snippets by system: (system, title of a file or "", snippets)."""

    client: Client
    kind: Kind
    systems: Sequence[tuple[str, str, Sequence[MarkedSnippet]]]

    @property
    def ends(self) -> str:
        """The name of the texts about the end of its base URL: a kind of client, or a link."""
        return self.client.ends or self.kind.name

    @property
    def wrong_path(self) -> str:
        """The path that it would request with the base URL of a whole endpoint."""
        return f"/v1/messages{self.kind.appends}"


@dataclass(frozen=True, slots=True)
class SnippetValues:
    """The values of snippets; the secret may be shortened."""

    base_url: str
    secret: str
    model: str | None


def panels(values: SnippetValues) -> list[ClientPanel]:
    """Return a panel for each client."""
    return [
        ClientPanel(client, KINDS[client.kind], _systems(name, values))
        for name, client in CLIENTS.items()
    ]


def _systems(client: str, values: SnippetValues) -> list[tuple[str, str, Sequence[MarkedSnippet]]]:
    systems: list[tuple[str, str, Sequence[MarkedSnippet]]] = []
    for setup in setups(client, values.base_url, values.secret, values.model):
        marked = [
            MarkedSnippet(snippet.title, cut(snippet.text, values)) for snippet in setup.snippets
        ]
        title = setup.snippets[0].title.rpartition("/")[2] if setup.system == FILE else ""
        systems.append((setup.system, title, marked))
    return systems


def cut(text: str, values: SnippetValues) -> list[Piece]:
    """Cut a text into pieces, of which secrets and other values are marked."""
    classes = {values.secret: "secret-value", values.base_url + "/v1": "value"}
    classes |= {values.base_url: "value"}
    if values.model:
        classes[values.model] = "value"
    words = sorted(classes, key=len, reverse=True)
    parts = re.split("(" + "|".join(map(re.escape, words)) + ")", text)
    return [(classes.get(part, ""), part) for part in parts if part]


# ---- the test call -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """A request to the relay: a model, as a client of the family would call it, with a secret."""

    family: str
    model: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RelayAnswer:
    """The answer of the relay. `status` None: none, `error` has the reason. `text`: of the model,
    or the body of an error; `request_id`: of the usage record, if there is one."""

    status: int | None
    request_id: str | None
    first_byte_ms: int | None
    total_ms: int
    text: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SetupTest:
    """A test call and its usage record, if it left one that is this user's."""

    client: str
    model: str
    answer: RelayAnswer
    record: Mapping[str, Any] | None

    @property
    def of_money(self) -> bool:
        """Tell whether the wallet explains more than the channel status."""
        return self.record is not None and self.record["error_code"] in MONEY_CODES

    def to_plain(self) -> dict[str, Any]:
        """Return the JSON of a test call."""
        return {**asdict(self.answer), "record": self.record}


async def call_relay(server: ServerSettings, call: RelayRequest) -> RelayAnswer:
    """Make a call; the answer is cut at MAX_BODY_BYTES."""
    # A path takes no slash of a name.
    model = quote(call.model, safe="") if call.family == "generate_content" else call.model
    path, headers, body = sample_request(call.family, call.secret, model, MAX_TOKENS)
    received = bytearray()
    begin_s = time.monotonic()
    first_s: list[float] = []

    def take(chunk: bytes) -> None:
        if not first_s:
            first_s.append(time.monotonic())
        received.extend(chunk[: max(0, MAX_BODY_BYTES - len(received))])

    request = HTTPRequest(
        base_url(ServerSettings(host=server.host, port=server.port)) + path,
        method="POST",
        headers={**headers, "Content-Type": "application/json", "User-Agent": AGENT},
        body=json.dumps(body),
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=TIMEOUT_S,
        follow_redirects=False,
        streaming_callback=take,
    )
    client = SimpleAsyncHTTPClient(force_instance=True)
    status: int | None = None
    request_id = error = None
    try:
        response = await client.fetch(request, raise_error=False)
        status, request_id = response.code, response.headers.get("x-request-id")
    except (OSError, HTTPError) as failure:  # no answer: a status of the relay's own raises nothing
        error = str(failure)
    finally:
        client.close()
    total_ms = _ms(time.monotonic() - begin_s)
    first_ms = _ms(first_s[0] - begin_s) if first_s else None
    text = received.decode("utf-8", "replace")
    if status == HTTPStatus.OK:
        text = _text_of_stream(call.family, text)
    return RelayAnswer(status, request_id, first_ms, total_ms, text[:MAX_TEXT_CHARS], error)


def _text_of_stream(family: str, stream: str) -> str:
    texts = []
    for line in stream.splitlines():
        if not line.startswith("data:"):
            continue
        try:
            event = json.loads(line.removeprefix("data:"))
        except ValueError:
            continue  # [DONE], or the cut of the answer
        if isinstance(event, dict):
            texts.append(_text_of_event(family, event))
    return "".join(texts)


def _text_of_event(family: str, event: Mapping[str, Any]) -> str:
    """Return the text that an event adds; "" for none."""
    try:
        match family:
            case "chat_completions":
                text = event["choices"][0]["delta"]["content"]
            case "responses":
                text = event["delta"] if event["type"] == "response.output_text.delta" else ""
            case "messages":
                text = event["delta"]["text"]
            case _:
                parts = event["candidates"][0]["content"]["parts"]
                text = "".join(part.get("text", "") for part in parts)
    except (KeyError, IndexError, TypeError, AttributeError):
        return ""
    return text if isinstance(text, str) else ""


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


async def run_test(handler: HubHandler, client: str, model: str, secret: str) -> SetupTest:
    """Make a test call. Failure: unknown client, no model, malformed secret, too many calls."""
    me = handler.me
    if client not in CLIENTS:
        raise invalid("client", f"client is one of {', '.join(CLIENTS)}")
    if not model:
        raise invalid("model", "model is missing")
    if not GIVEN_SECRET.fullmatch(secret):
        raise invalid("secret", "paste the whole secret: 16 to 200 of A-Z a-z 0-9 . _ -")
    if me.user_id in _running or len(_running) >= MAX_RUNNING:
        text = "a test call is running; try again in a few seconds"
        raise Failure(HTTPStatus.TOO_MANY_REQUESTS, "too_many", text, wait_s=RETRY_AFTER_S)
    _running.add(me.user_id)
    try:
        await handler.store(_check_networks, handler, secret)
        request = RelayRequest(CLIENTS[client].family, model, secret)
        answer = await call_relay(handler.site.settings.server, request)
        outcome = {"client": client, "status": answer.status, "request_id": answer.request_id}
        await handler.note("test", "model", model, **outcome)
        record = await _record(handler, me.user, answer.request_id)
    finally:
        _running.discard(me.user_id)
    return SetupTest(client, model, answer, record)


def _check_networks(db: peewee.Database, handler: HubHandler, secret: str) -> None:
    """Raise Failure for a key not for the user's address: the relay sees that of the Hub."""
    peppers = handler.site.sealing.peppers
    key = find_key(db, key_secrets.digests(secret, peppers))
    if key is not None and key.networks and not is_within(handler.address, key.networks):
        text = f"the key may not be used from {handler.address}: its networks do not have it"
        raise Failure(HTTPStatus.FORBIDDEN, "forbidden", text, "secret")


async def _record(
    handler: HubHandler, user: str, request_id: str | None
) -> Mapping[str, Any] | None:
    """Wait for the usage record of a call, and return it."""
    loop = asyncio.get_running_loop()
    until = loop.time() + RECORD_WAIT_S
    while request_id is not None:
        record = await handler.store(own_record, user, request_id)
        if record is not None or loop.time() >= until:
            return record
        await asyncio.sleep(RECORD_LOOK_S)
    return None


def own_record(db: peewee.Database, user: str, call_id: str) -> Mapping[str, Any] | None:
    """Return the record of a user's call in short."""
    rows = history(db, Filters(user=user, request_id=call_id), 1)
    if not rows:
        return None
    return {name: rows[0][name] for name in RECORD_FIELDS} | {
        "cost": format_money(rows[0]["cost_nanos"])
    }


class SetupPage(Page):
    """/setup: the chosen client, key and model stand in its address."""

    async def get(self) -> None:
        await self.page()

    async def page(self, test: SetupTest | None = None, failure: Failure | None = None) -> None:
        """Answer with the page, after a test call with its result."""
        at_ms, base = now_ms(), self.site.base_url
        own = await self.store(own_keys.owned, self.me.user_id, at_ms)
        working = [key for key in own if state_of(key, at_ms, base) in WORKING]
        key = next((key for key in working if key.id == self.get_argument("key", "")), None)
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
            panels=panels(SnippetValues(base, secret, model or None)),
            state=await self._state(key, model, at_ms),
            url=url,
            checked=check(url, base, self.site.settings.hub.public_url) if url else None,
            test=test,
            reason=failure_reason,
            failure=failure,
        )

    async def _state(self, key: OwnKey | None, model: str, at_ms: int) -> str:
        """Return the state of a model in the key's group; "" when it is available."""
        if key is None or not model:
            return ""
        statuses = await self.store(of_models, at_ms, [key.group], figures_of=())
        # Without a channel it has no status.
        state = next((status.state for status in statuses if status.model == model), DOWN)
        return "" if state == AVAILABLE else state

    async def _models(self, key: OwnKey | None) -> Sequence[str]:
        if key is None:
            return ()
        if key.models:
            return tuple(key.models)
        group = (await self.store(key_groups)).get(key.group)
        return group.models if group else ()


class SetupTestForm(SetupPage):
    """/setup/test: makes a test call, and answers with the page."""

    async def get(self) -> None:
        self.redirect("/setup", status=303)

    @or_refused
    async def post(self) -> None:
        arguments = (self.get_body_argument(name, "") for name in ("client", "model", "secret"))
        client, model, secret = (text.strip() for text in arguments)
        await self.page(await run_test(self, client, model, secret))

    async def refuse(self, failure: Failure) -> None:
        await self.page(failure=failure)


class CheckUrlApi(Api):
    """POST /api/setup/check-url: {"url"}."""

    change_scope = "read"  # it changes nothing

    async def post(self) -> None:
        url = self.body().get("url")
        if not isinstance(url, str) or not url.strip():
            raise invalid("url", "url is missing")
        result = check(url, self.site.base_url, self.site.settings.hub.public_url)
        self.answer(check_to_plain(result))


def check_to_plain(result: Check) -> dict[str, Any]:
    """Return the JSON of a check."""
    return {
        "problem": result.problem,
        "verdicts": [
            {
                "kind": verdict.kind,
                "rule": verdict.rule,
                "asks": verdict.path + verdict.appended,
                "right": verdict.right,
                "base_url": verdict.use,
            }
            for verdict in result.verdicts
        ],
    }


class SetupTestApi(Api):
    """POST /api/setup/test: {"secret", "model", "client"}."""

    async def post(self) -> None:
        body = self.body()
        fields = {name: body.get(name, "") for name in ("client", "model", "secret")}
        for name, value in fields.items():
            if not isinstance(value, str):
                raise invalid(name, f"{name} must be a string")
        fields["client"] = fields["client"] or "curl"
        self.answer((await run_test(self, **fields)).to_plain())

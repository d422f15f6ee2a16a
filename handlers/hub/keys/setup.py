"""Client set-up: snippets with real values, the check of a base URL, the test call; pages and their
JSON API.

A test call is a real call as a key of the user, with a grant (handlers.hub.web.relay_calls). It is
charged and recorded like any other. The secret of a key never gets here: the page's script asks the
user for it and inserts it into the snippets.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import peewee

from adapters.registry import FAMILY_NAMES, LOSSES
from handlers.hub.keys.keys import WORKING, state_of
from handlers.hub.web.base import Api, Failure, HubHandler, Page, invalid, or_refused
from handlers.hub.web.formats import STATE_SHAPES, failure_reason
from handlers.hub.web.relay_calls import (
    AnswerText,
    RelayAnswer,
    RelayCall,
    record_of,
    running,
)
from operations.base_url_check import KINDS, Check, Kind, check
from operations.client_settings import CLIENTS, FILE, Client, SampleRequest, sample_request, setups
from store.channels.offers import Offer, load_offering, native_model
from store.channels.status import AVAILABLE
from store.hub import own_keys
from store.hub.own_keys import OwnKey
from store.values.ids import now_ms
from store.values.pricing import format_money
from store.values.usage_record import MONEY_CODES

NO_SECRET = "YOUR_API_KEY"
"""The placeholder for the secret in snippets, which the page's script replaces."""
RECORD_FIELDS = (
    *("id", "outcome", "status", "error_code", "error_message", "model", "input_tokens"),
    *("output_tokens", "billed_to", "ttft_ms", "duration_ms"),
)
MAX_TEXT_CHARS = 2000
MAX_TOKENS = 200
AGENT = "sluice-hub-test"
FIRST_CLIENT = next(iter(CLIENTS))

# ---- snippets ------------------------------------------------------------------------------------

Piece = tuple[str, str]
"""A class of the style sheet ("" for none) and a text."""


@dataclass(frozen=True, slots=True)
class MarkedSnippet:
    """A snippet split into pieces."""

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
        """Return the name of the texts about how its base URL ends: a kind of client, or a link."""
        return self.client.ends or self.kind.name

    @property
    def wrong_path(self) -> str:
        """Return the path that the client would request if its base URL were a whole endpoint."""
        appends = "/responses" if self.client.family == "responses" else self.kind.appends
        return f"/v1/messages{appends}"


@dataclass(frozen=True, slots=True)
class SnippetValues:
    """The values to insert into snippets. `model_of`: returns the model for a family."""

    base_url: str
    secret: str
    model_of: Callable[[str], str | None]


def panels(base_url: str, secret: str, model_of: Callable[[str], str | None]) -> list[ClientPanel]:
    """Return a panel for each client. `model_of`: returns the model for a family."""
    return [
        ClientPanel(
            client,
            KINDS[client.kind],
            _systems(name, SnippetValues(base_url, secret, model_of)),
        )
        for name, client in CLIENTS.items()
    ]


def _systems(client: str, values: SnippetValues) -> list[tuple[str, str, Sequence[MarkedSnippet]]]:
    systems: list[tuple[str, str, Sequence[MarkedSnippet]]] = []
    for setup in setups(client, values.base_url, values.secret, values.model_of):
        marked = [
            MarkedSnippet(snippet.title, cut(snippet.text, values)) for snippet in setup.snippets
        ]
        title = setup.snippets[0].title.rpartition("/")[2] if setup.system == FILE else ""
        systems.append((setup.system, title, marked))
    return systems


def cut(text: str, values: SnippetValues) -> list[Piece]:
    """Split a text into pieces, marking secrets and other values."""
    classes = {values.secret: "secret-value", values.base_url + "/v1": "value"}
    models = filter(None, map(values.model_of, FAMILY_NAMES))
    classes |= dict.fromkeys((values.base_url, *models), "value")
    words = sorted(classes, key=len, reverse=True)
    parts = re.split("(" + "|".join(map(re.escape, words)) + ")", text)
    return [(classes.get(part, ""), part) for part in parts if part]


# ---- the test call -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetupTest:
    """A test call with its usage record, if it has one. `text`: the model's text, or the body of an
    error."""

    client: str
    model: str
    answer: RelayAnswer
    text: str
    record: Mapping[str, Any] | None

    @property
    def of_money(self) -> bool:
        """Return whether the wallet explains the failure better than the channel status."""
        return self.record is not None and self.record["error_code"] in MONEY_CODES

    def to_plain(self) -> dict[str, Any]:
        """Return the test call as JSON."""
        answer = self.answer
        return {
            "status": answer.status,
            "request_id": answer.request_id,
            "first_byte_ms": answer.first_byte_ms,
            "total_ms": answer.total_ms,
            "text": self.text,
            "error": answer.error,
            "record": self.record,
        }


async def run_test(handler: HubHandler, client: str, model: str, key_id: str) -> SetupTest:
    """Make a test call as a key of the user. Raises Failure for an unknown client, no model, an
    unknown key, or too many running calls."""
    if client not in CLIENTS:
        raise invalid("client", f"client is one of {', '.join(CLIENTS)}")
    if not key_id:
        raise invalid("key", "key is missing: the id of a key of yours")
    await handler.store(own_keys.owner_of, handler.me.user_id, key_id)
    family = CLIENTS[client].family
    if not model:
        key = await handler.store(own_keys.show, handler.me.user_id, key_id, now_ms())
        offers = await handler.store(offers_of, key)
        model = native_model(offers, family, LOSSES) or ""
    if not model:
        raise invalid("model", "model is missing")
    # A slash in a model's name must not become part of the path.
    name = quote(model, safe="") if family == "generate_content" else model
    path, headers, body = sample_request(family, "", name, MAX_TOKENS)
    keyless = {name: value for name, value in headers.items() if name == "anthropic-version"}
    reader = AnswerText(family)
    with running(handler):
        answer = await RelayCall(handler, key_id, AGENT).run(
            SampleRequest(path, keyless, body), reader
        )
        outcome = {"client": client, "status": answer.status, "request_id": answer.request_id}
        await handler.note("test", "model", model, **outcome)
        row = await record_of(handler, answer.request_id)
    record = None
    if row is not None:
        record = {name: row[name] for name in RECORD_FIELDS}
        record["cost"] = format_money(row["cost_nanos"])
    text = reader.text or reader.raw
    return SetupTest(client, model, answer, text[:MAX_TEXT_CHARS], record)


def offers_of(db: peewee.Database, key: OwnKey) -> list[Offer]:
    """Return the models that a key can call."""
    offering = load_offering(db, now_ms(), [key.group], LOSSES, figures_of=())
    return offering.callable_offers(key.group, key.models)


class SetupPage(Page):
    """/setup: client, key and model are arguments of the query. Without a model, each client gets
    one that is native to its family."""

    async def get(self) -> None:
        await self.page()

    async def page(self, test: SetupTest | None = None, failure: Failure | None = None) -> None:
        """Render the page. `test`: the result of a test call."""
        at_ms, base = now_ms(), self.site.base_url
        own = await self.store(own_keys.owned, self.me.user_id, at_ms)
        working = [key for key in own if state_of(key, at_ms, base) in WORKING]
        key = next((key for key in working if key.id == self.get_argument("key", "")), None)
        key = key or next(iter(working), None)
        offers = await self.store(offers_of, key) if key else []
        states = {offer.model: offer.status.state for offer in offers}
        model = self.get_argument("model", "")
        model = model if model in states else ""
        client = self.get_argument("client", "")
        url = self.get_query_argument("url", "")
        natively = {
            family: native_model(offers, family, LOSSES) or next(iter(states), None)
            for family in FAMILY_NAMES
        }
        state = states.get(model, AVAILABLE)
        self.show(
            "keys/setup.html",
            keys=working,
            key=key,
            models=sorted(states),
            model=model,
            client=client if client in CLIENTS else FIRST_CLIENT,
            panels=panels(base, NO_SECRET, lambda family: model or natively[family]),
            state="" if state == AVAILABLE else state,
            url=url,
            checked=check(url, base, self.site.settings.hub.public_url) if url else None,
            test=test,
            reason=failure_reason,
            STATE_SHAPES=STATE_SHAPES,
            failure=failure,
        )


class SetupTestForm(SetupPage):
    """/setup/test: makes a test call and renders the page."""

    async def get(self) -> None:
        self.redirect("/setup", status=303)

    @or_refused
    async def post(self) -> None:
        arguments = (self.get_body_argument(name, "") for name in ("client", "model", "key"))
        client, model, key_id = (text.strip() for text in arguments)
        await self.page(await run_test(self, client, model, key_id))

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
    """Return a check as JSON."""
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
    """POST /api/setup/test: {"key", "model", "client"}. Without a model, one native to the client
    is called."""

    async def post(self) -> None:
        body = self.body()
        fields = {name: body.get(name, "") for name in ("client", "model", "key")}
        for name, value in fields.items():
            if not isinstance(value, str):
                raise invalid(name, f"{name} must be a string")
        test = await run_test(self, fields["client"] or "curl", fields["model"], fields["key"])
        self.answer(test.to_plain())

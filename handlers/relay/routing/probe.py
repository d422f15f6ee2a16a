"""The gateway's own small calls through one channel: `channel test`, probes, key checks.

The channel's family builds the request and reads the answer. Nothing is charged and no usage record
is made, but the vendor counts the call.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from adapters.codecs import CODECS, PAIRINGS
from adapters.faults import Condition, Fault, clean_message
from adapters.framing.sse import EventSplitter, event_fields
from adapters.ir.answer import Delta, Opened
from adapters.ir.parts import Text
from adapters.json.edits import edited
from adapters.json.jsonio import dumps, loads_loose, loads_or_none, top_level
from adapters.json.structure import at_once
from adapters.registry import FAMILIES, VENDORS
from adapters.upstream_errors.read import read_embedded_error, read_upstream_error
from conf.settings import UpstreamSettings
from handlers.relay.upstream.addressing import Target, headers_of, url_of
from handlers.relay.upstream.client import Exchange, UpstreamClient, UpstreamError, UpstreamRequest
from handlers.relay.upstream.errors import fault_of, secrets_of, wait_headers
from handlers.relay.upstream.request import ANSWERED
from store.catalog.catalog import Channel
from store.values.usage import Usage

PROMPT = "Reply with the word ready."
MAX_TOKENS = 64
PATIENCE_S = 60
MAX_ANSWER_BYTES = 262_144  # for the answer to PROMPT, which is parsed in one step
ANSWER_CHARS = 60  # characters of the answer's start in an Outcome
MAX_LIST_BYTES = 4 << 20  # of models, a few kilobytes each
HTML_ANSWER = "an HTML page instead of an answer"
HTML_MESSAGE = f"{HTML_ANSWER}: base_url may lead to a web site"
_HTML_BEGINS = (b"<!doctype html", b"<html")

_MESSAGES = [{"role": "user", "content": PROMPT}]


@dataclass(frozen=True, slots=True)
class Probe:
    """A small request of a family: its fields. `in_path`: the path, not the body, has the model and
    the choice of a stream."""

    fields: dict[str, Any]
    in_path: bool = False


# Not every chat model accepts max_tokens, and the answer is short anyway.
PROBES: dict[str, Probe] = {
    "chat_completions": Probe({"messages": _MESSAGES}),
    "responses": Probe({"input": PROMPT, "store": False}),
    "messages": Probe({"messages": _MESSAGES, "max_tokens": MAX_TOKENS}),
    "generate_content": Probe(
        {"contents": [{"role": "user", "parts": [{"text": PROMPT}]}]}, in_path=True
    ),
}


@dataclass(slots=True)
class Outcome:
    """The outcome of a call. `fault` None: a complete answer of the family arrived. Times are since
    the start. `error`: the word that a usage record would have for the attempt. `message`: for the
    operator. `address`: the URL that was called. `answer`: the start of its text. `usage`: tokens,
    None if not reported."""

    status: int | None = None
    first_byte_ms: int | None = None
    total_ms: int = 0
    fault: Fault | None = None
    error: str | None = None
    message: str | None = None
    address: str | None = None
    answer: str | None = None
    usage: Usage | None = None


async def call(client: UpstreamClient, target: Target, limits: UpstreamSettings) -> Outcome:
    """Make the call. Return an Outcome, whatever the upstream does."""
    outcome = Outcome()
    started_s = time.monotonic()
    try:
        request = _request(target, limits)
        outcome.address = request.url
        exchange = client.start(request)
        try:
            await exchange.head
            if exchange.streaming:
                await _read_stream(target, exchange, limits, outcome)
            else:
                _read_whole(target, exchange, outcome)
        finally:
            outcome.status = exchange.status or None
            outcome.first_byte_ms = exchange.first_byte_ms
            exchange.cancel()
    except UpstreamError as error:
        outcome.fault, outcome.error = fault_of(error), error.kind
        outcome.message = str(error)
    except Fault as fault:
        outcome.fault, outcome.error = fault, fault.code
        outcome.message = outcome.message or _message_of(fault)
    outcome.total_ms = round((time.monotonic() - started_s) * 1000)
    return outcome


async def list_models(
    client: UpstreamClient, channel: Channel, key: str, limits: UpstreamSettings
) -> Fault | None:
    """Request the vendor's list of models, which is free. Return None if a list arrived."""
    try:
        exchange = await _ask(client, _list_request(channel, key, limits))
        _refuse_error(channel, exchange)
    except UpstreamError as error:
        return fault_of(error)
    except Fault as fault:
        return fault
    return None


@dataclass(slots=True)
class Listing:
    """The models that a vendor lists, or none and a `message` for the operator."""

    names: list[str] = field(default_factory=list)
    status: int | None = None
    message: str | None = None


async def model_names(
    client: UpstreamClient, channel: Channel, key: str, limits: UpstreamSettings
) -> Listing:
    """Read the same list. Return a Listing, whatever the upstream does."""
    family, listing = FAMILIES[channel.family].upstream, Listing()
    try:
        exchange = await _ask(client, _list_request(channel, key, limits, family.models_query))
        listing.status = exchange.status or None
        if _is_html(exchange):
            listing.message = HTML_MESSAGE
        _refuse_error(channel, exchange)
        listing.names = family.read_models(exchange.body)
    except UpstreamError as error:
        listing.message = str(error)
    except Fault as fault:
        listing.message = listing.message or _message_of(fault)
    return listing


async def _ask(client: UpstreamClient, request: UpstreamRequest) -> Exchange:
    """Return an exchange whose whole answer has arrived. Raises Fault, UpstreamError."""
    exchange = client.start(request)
    try:
        await exchange.head
    finally:
        exchange.cancel()
    return exchange


def _refuse_error(channel: Channel, exchange: Exchange) -> None:
    """Raise the Fault of an answer that is an error or not JSON."""
    if exchange.status != HTTPStatus.OK:
        waits, secrets = wait_headers(exchange), secrets_of(channel)
        raise read_upstream_error(exchange.status, waits, exchange.body, secrets).fault
    try:
        answer = loads_loose(exchange.body)
    except ValueError:
        raise Fault(Condition.UPSTREAM_INVALID) from None
    if isinstance(answer, dict) and "error" in answer:
        raise read_embedded_error(answer, secrets_of(channel)).fault


def _message_of(fault: Fault) -> str:
    return f"{fault.code}: {fault.operator_message or fault.message}"


def _list_request(
    channel: Channel, key: str, limits: UpstreamSettings, query: str = ""
) -> UpstreamRequest:
    listing = FAMILIES[channel.family].upstream.operations["list_models"]
    target = Target(channel, "", key, stream=False)
    return _request_to(target, listing.endpoint + query, None, limits, MAX_LIST_BYTES)


def _request(target: Target, limits: UpstreamSettings) -> UpstreamRequest:
    family, operation, vendor = target.family, target.operation, VENDORS[target.channel.vendor]
    probe = PROBES[family.name]
    named = {} if probe.in_path else {"model": target.model, "stream": target.stream}
    spans = top_level(dumps(named | probe.fields))
    peek = family.client.peek(spans, operation, target.model)
    path = family.upstream.path(operation, target.upstream_model, target.model)
    body = family.upstream.edit_request(spans, peek, operation, target.upstream_model, vendor)
    if target.channel.body:
        body = edited(top_level(body), target.channel.body)
    return _request_to(target, path, body, limits, MAX_ANSWER_BYTES)


def _request_to(
    target: Target, path: str, body: bytes | None, limits: UpstreamSettings, max_bytes: int
) -> UpstreamRequest:
    channel = target.channel
    return UpstreamRequest(
        method="GET" if body is None else "POST",
        url=url_of(channel, path),
        headers=headers_of(channel, VENDORS[channel.vendor], target.key, {}),
        body=body,
        connect_timeout_s=limits.connect_timeout_s,
        first_byte_timeout_s=min(limits.first_byte_timeout_s, PATIENCE_S),
        idle_timeout_s=min(limits.idle_timeout_s, PATIENCE_S),
        max_answer_bytes=min(limits.max_answer_bytes, max_bytes),
        stream=target.stream,
        route=channel.route,
    )


def _read_whole(target: Target, exchange: Exchange, outcome: Outcome) -> None:
    channel = target.channel
    if _is_html(exchange):
        outcome.message = HTML_MESSAGE
    if exchange.status not in ANSWERED:
        waits, secrets = wait_headers(exchange), secrets_of(channel)
        read = read_upstream_error(exchange.status, waits, exchange.body, secrets)
        raise read.fault
    if target.stream:
        content_type = exchange.content_type or "nothing"
        outcome.message = (
            outcome.message or f"asked for a stream, the answer is {clean_message(content_type)}"
        )
        raise Fault(Condition.UPSTREAM_INVALID)
    read_answer = target.family.upstream.read_answer
    body = exchange.body
    outcome.usage = read_answer(body, target.model, target.upstream_model, target.operation).usage
    with contextlib.suppress(Fault):
        choices = at_once(CODECS[target.family.name].upstream.decode_answer(body))
        parts = choices[0].parts if choices else ()
        text = "".join(part.text for part in parts if isinstance(part, Text))
        outcome.answer = text[:ANSWER_CHARS]


def _is_html(exchange: Exchange) -> bool:
    """Return whether the answer is a web page, of the site or a proxy in between."""
    return exchange.body.lstrip()[:16].lower().startswith(_HTML_BEGINS)


class _Beginning:
    """Reader of the first words of a stream, beside the bridge that checks it."""

    def __init__(self, family: str, max_event_bytes: int) -> None:
        self._splitter = EventSplitter(max_event_bytes)
        self._decoder = CODECS[family].upstream.open_decoder()
        self._slots: set[int] = set()  # slots of text parts
        self.text = ""

    def feed(self, chunk: bytes) -> None:
        """Read a chunk of the stream."""
        if len(self.text) >= ANSWER_CHARS:
            return
        for piece in self._splitter.feed(chunk):
            name, data = event_fields(piece)
            value = loads_or_none(data) if data else None
            for event in self._decoder.read(name, value) if isinstance(value, dict) else ():
                if isinstance(event, Opened) and event.kind == "text":
                    self._slots.add(event.slot)
                elif isinstance(event, Delta) and event.slot in self._slots:
                    self.text = (self.text + event.text)[:ANSWER_CHARS]


async def _read_stream(
    target: Target, exchange: Exchange, limits: UpstreamSettings, outcome: Outcome
) -> None:
    bridge = PAIRINGS[target.family.name, target.family.name].open_bridge(
        target.model, target.upstream_model, True, target.operation, limits.max_event_bytes
    )
    beginning = _Beginning(target.family.name, limits.max_event_bytes)
    ended: asyncio.Future[UpstreamError | None] = asyncio.get_running_loop().create_future()

    def end(error: UpstreamError | None) -> None:
        if not ended.done():
            ended.set_result(error)

    def take(chunk: bytes) -> bool:
        bridge.feed(chunk)
        exchange.unread = bridge.busy
        with contextlib.suppress(Fault):
            beginning.feed(chunk)
        if bridge.ended:
            end(None)  # nothing is expected after the terminal marker
        return True

    exchange.pipe(take, end)
    error = await ended
    outcome.answer, outcome.usage = beginning.text, bridge.usage
    if error is not None:
        raise error
    bridge.close()
    outcome.usage = bridge.usage
    if bridge.fault is not None:
        raise bridge.fault
    if not bridge.whole:
        raise Fault(Condition.UPSTREAM_INVALID, "the stream ended before the answer was whole")

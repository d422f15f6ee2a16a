"""`channel test`: a real call through one channel, as the relay would make it.

The request is built and the answer read by the family of the channel, so every family works alike.
Nothing is charged and no usage record is made; the vendor of the channel does count the call.
"""

import asyncio
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from adapters.bridge import NativeStream
from adapters.conditions import Condition, Fault
from adapters.family import Family, Operation
from adapters.faults import read_upstream_error
from adapters.jsonio import dumps, top_level
from adapters.masking import clean_message
from adapters.registry import FAMILIES, VENDORS
from commands.output import FAILED, config_option, json_option, print_fields, print_json
from commands.store_access import Access, opened_store
from conf.settings import UpstreamSettings
from handlers.relay.upstream import Exchange, UpstreamClient, UpstreamError, UpstreamRequest
from store.catalog import Channel, load_snapshot
from store.cipher import Cipher
from store.document_texts import nearest
from store.errors import Refused
from store.export import show

PROMPT = "Reply with the word ready."
MAX_TOKENS = 64
PATIENCE_S = 60
BODY_CHARS = 2000

_MESSAGES = [{"role": "user", "content": PROMPT}]


@dataclass(frozen=True, slots=True)
class Probe:
    """A small request of a family: its fields, and the names of the operations, plain and
    streamed. `in_path`: model and streaming are told by the path, not by the body."""

    fields: dict[str, Any]
    plain: str = "create"
    streamed: str = "create"
    in_path: bool = False


# Not every chat model takes max_tokens, and the answer is short anyway.
PROBES: dict[str, Probe] = {
    "chat_completions": Probe({"messages": _MESSAGES}),
    "responses": Probe({"input": PROMPT, "store": False}),
    "messages": Probe({"messages": _MESSAGES, "max_tokens": MAX_TOKENS}),
    "generate_content": Probe(
        {"contents": [{"role": "user", "parts": [{"text": PROMPT}]}]},
        plain="generateContent",
        streamed="streamGenerateContent",
        in_path=True,
    ),
}


@dataclass(slots=True)
class Result:
    """How a call went. `error` None: a whole answer of the family came; times from the start."""

    channel: str
    model: str
    upstream_model: str
    stream: bool
    status: int | None = None
    first_byte_ms: int | None = None
    total_ms: int = 0
    error: str | None = None


@click.command("test")
@click.argument("name")
@click.option("--model", help="Public name of the model.  [default: the channel's first]")
@click.option("--stream", is_flag=True, help="Ask for a stream.")
@config_option
@json_option
def command(name: str, model: str | None, stream: bool, config: Path | None, as_json: bool) -> int:
    """Make a real call through a channel; exit code 1 when it fails."""
    with opened_store(config) as access:
        channel = _channel(access, name)
        limits = access.loaded.settings.upstream
    public = _model(channel, model)
    result = Result(channel.name, public, channel.models[public], stream)
    started_s = time.monotonic()
    asyncio.run(_call(channel, result, limits))
    result.total_ms = round((time.monotonic() - started_s) * 1000)
    if as_json:
        print_json({"ok": result.error is None, **asdict(result)})
    else:
        print_fields(asdict(result))
    return 0 if result.error is None else FAILED


def _channel(access: Access, name: str) -> Channel:
    """The channel with its keys opened, enabled or not."""
    show(access.db, "channel", name)  # its NotFound knows the nearest name
    snapshot = load_snapshot(access.db, Cipher(access.secrets().cipher_keys))
    for channel in snapshot.channels:
        if channel.name == name:
            return channel
    raise Refused(snapshot.faults)


def _model(channel: Channel, asked: str | None) -> str:
    where = f'channel "{channel.name}"'
    if not channel.models:
        raise Refused(
            [f"{where} serves no model: ./sluice channel set {channel.name} models.NAME=UPSTREAM"]
        )
    if asked is not None and asked not in channel.models:
        raise Refused([f'{where} does not serve model "{asked}"{nearest(asked, channel.models)}'])
    return asked or next(iter(channel.models))


async def _call(channel: Channel, result: Result, limits: UpstreamSettings) -> None:
    """Make the call and fill in how it went; nothing is raised for what an upstream can do."""
    family = FAMILIES[channel.family]
    client = UpstreamClient(force_instance=True)
    try:
        exchange = client.start(_request(family, channel, result, limits))
        try:
            await exchange.head
            if exchange.streaming:
                await _read_stream(family, exchange, result, limits)
            else:
                _read_whole(family, channel, exchange, result)
        finally:
            result.status = exchange.status or None
            result.first_byte_ms = exchange.first_byte_ms
            exchange.cancel()
    except UpstreamError as error:
        result.error = str(error)
    except Fault as fault:
        result.error = f"{fault.code}: {fault.message}"
    finally:
        client.close()


def _request(
    family: Family, channel: Channel, result: Result, limits: UpstreamSettings
) -> UpstreamRequest:
    probe, operation = PROBES[family.name], _operation(family, result)
    named = {} if probe.in_path else {"model": result.model, "stream": result.stream}
    body, vendor = dumps(named | probe.fields), VENDORS[channel.vendor]
    spans = top_level(body)
    peek = family.peek(spans, operation, result.model)
    path = family.upstream_path(operation, result.upstream_model, result.model)
    return UpstreamRequest(
        method="POST",
        url=channel.base_url + vendor.prefixes.get(family.name, "") + path,
        headers=family.request_headers({}, vendor, channel.keys[0] if channel.keys else ""),
        body=family.edit_request(body, spans, peek, result.upstream_model, vendor),
        connect_timeout_s=limits.connect_timeout_s,
        first_byte_timeout_s=min(limits.first_byte_timeout_s, PATIENCE_S),
        idle_timeout_s=min(limits.idle_timeout_s, PATIENCE_S),
        max_answer_bytes=limits.max_answer_bytes,
        stream=result.stream,
    )


def _operation(family: Family, result: Result) -> Operation:
    probe = PROBES[family.name]
    return family.operations[probe.streamed if result.stream else probe.plain]


def _read_whole(family: Family, channel: Channel, exchange: Exchange, result: Result) -> None:
    if exchange.status != 200:
        fault = read_upstream_error(exchange.status, {}, exchange.body).fault
        # what a client may not read helps the operator: the vendor's own words, without secrets
        said = exchange.body[:BODY_CHARS].decode(errors="replace")
        result.error = f"{fault.code}: {clean_message(said, channel.keys) or fault.message}"
    elif result.stream:
        content_type = exchange.content_type or "nothing"
        result.error = f"asked for a stream, the answer is {clean_message(content_type)}"
    else:
        operation = _operation(family, result)
        family.read_answer(exchange.body, result.model, result.upstream_model, operation)


async def _read_stream(
    family: Family, exchange: Exchange, result: Result, limits: UpstreamSettings
) -> None:
    tap = family.stream_tap(
        result.model, result.upstream_model, drop_usage=True, operation=_operation(family, result)
    )
    stream = NativeStream(tap, limits.max_event_bytes)
    ended: asyncio.Future[UpstreamError | None] = asyncio.get_running_loop().create_future()

    def end(error: UpstreamError | None) -> None:
        if not ended.done():
            ended.set_result(error)

    def take(chunk: bytes) -> bool:
        stream.feed(chunk)
        if tap.ended:
            end(None)  # behind the terminal marker nothing is awaited
        return True

    exchange.pipe(take, end)
    error = await ended
    if error is not None:
        raise error
    stream.close()
    if tap.fault is not None:
        raise tap.fault
    if not stream.whole:
        raise Fault(Condition.UPSTREAM_INVALID, "the stream ended before the answer was whole")

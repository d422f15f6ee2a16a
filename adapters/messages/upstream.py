"""The upstream side of the messages family: request headers, whole answers and their usage.

Two versions of the API are in use; the client's version and betas are sent along with its body.
``input_tokens`` excludes cache reads and writes; ``output_tokens`` includes thinking; the counts of
``adapters.ir`` are disjoint.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from adapters.family import Operation, Peek, Vendor
from adapters.family.counts import extras_of, fields_in, served_of
from adapters.family.empty_answer import has_content
from adapters.family.estimate import output_weight
from adapters.family.headers import base_lines, forwarded, is_safe, rename_model
from adapters.family.reply import AnswerReader, Reply, dicts, embedded_fault, text_field
from adapters.json.jsonio import (
    DECODE_ERRORS,
    Raw,
    Span,
    Spans,
    Struct,
    decoder,
    dumps,
    element_spans,
    inner_level,
    replace,
    replace_fields,
)
from store.values.usage import (
    NOT_REPORTED,
    OtherUsage,
    Served,
    Usage,
    more_counts,
    token_count,
)

MAX_OTHERS = 16  # limit of distinct models inside a call
NO_USAGE = Usage()
# Iterations that are read -> the feature that brings another model into them; "": none does.
_FEATURES = {
    "message": "fallbacks",
    "fallback_message": "fallbacks",
    "advisor_message": "advisor",
    "compaction": "",
}
KNOWN_VERSIONS = ("2023-06-01", "2026-10-21")  # oldest first
_VERSION_OF_NO_HEADER = KNOWN_VERSIONS[0]
# Set by the gateway or the channel: a client must not choose the workspace that pays.
_OURS = frozenset({"anthropic-version", "anthropic-beta", "anthropic-workspace-id"})


def request_headers(client: Mapping[str, str], vendor: Vendor, key: str) -> list[str]:
    """Return header lines for the upstream: the credential, the client's version and betas, and,
    only for Anthropic itself, the client's other `anthropic-*` headers."""
    lines = base_lines(client, vendor, key)
    lines.append(f"anthropic-version: {_version(client)}")
    betas = [beta.strip() for beta in client.get("anthropic-beta", "").split(",")]
    joined = ",".join(beta for beta in betas if beta)
    if is_safe(joined):
        lines.append(f"anthropic-beta: {joined}")
    if vendor.forward_anthropic_headers:
        own = [name for name in client if name[:10] == "anthropic-" and name not in _OURS]
        if own:
            lines += forwarded(client, own)
    return lines


def _version(client: Mapping[str, str]) -> str:
    """Return the version for the upstream: the client's if it is known, otherwise the newest
    known."""
    version = client.get("anthropic-version") or client.get("compat-version")
    if not version:
        return _VERSION_OF_NO_HEADER
    version = version.strip()
    return version if version in KNOWN_VERSIONS else KNOWN_VERSIONS[-1]


def edit_request(
    spans: Spans, read: Peek, operation: Operation, upstream_model: str, vendor: Vendor
) -> bytes:
    """Return the body with the upstream's names of all its models. ``read`` has the names of other
    models inside the call. The same object if nothing changes."""
    if not read.asks.models:
        return rename_model(spans, read, operation, upstream_model, vendor)
    edits: dict[Span, bytes] = {}
    model = spans.get("model")
    if model is not None and read.model != upstream_model:
        edits[model] = dumps(upstream_model)
    places = {ask.field: element_spans(spans, ask.field) for ask in read.asks.models}
    for ask in read.asks.models:
        element = places[ask.field][ask.index]
        inner = inner_level(spans.body[element.start : element.end])
        place, name = inner.places["model"], dumps(ask.name)
        if inner.raw("model") != name:
            edits[Span(element.start + place.start, element.start + place.end)] = name
    return replace(spans.body, edits) if edits else spans.body


class _Reply(Struct):
    """The fields of a whole answer that are read; the blocks stay undecoded."""

    type: str
    content: list[Raw]
    id: Any = None
    usage: Any = None
    container: Any = None
    stop_reason: Any = None


_decode_reply = decoder(_Reply)


def _fields(body: bytes) -> Reply | None:
    reply = _decode_reply(body)
    if reply.type == "error":
        return None
    usage = read_usage(reply.usage, container=has_container(reply.container))
    served, plain = read_served(reply.usage), stops_plainly(reply.stop_reason)
    return Reply(reply.id, reply.usage, [*reply.content], usage, served, plain)


def _odd_fields(answer: Any) -> Reply:
    content = answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(content, list) or answer.get("type") == "error":
        raise embedded_fault(answer)
    usage = answer.get("usage")
    counts = read_usage(usage, container=has_container(answer.get("container")))
    plain = stops_plainly(answer.get("stop_reason"))
    return Reply(answer.get("id"), usage, content, counts, read_served(usage), plain)


def stops_plainly(reason: object) -> bool:
    """Return true if an answer ended normally, or gives no reason."""
    return not reason or reason == "end_turn"


def _weight_of_block(block: dict[str, Any]) -> int:
    return sum(output_weight(text) for text in _texts(block))


def _texts(block: dict[str, Any]) -> Iterator[str]:
    for name in ("text", "thinking"):
        if isinstance(block.get(name), str):
            yield block[name]
    if isinstance(block.get("input"), dict):
        try:
            yield dumps(block["input"]).decode("ascii")
        except OverflowError:  # an infinity, or nested too deeply to be written
            return


def read_usage(usage: object, *, container: bool = False) -> Usage | None:
    """Return the counts of a usage object; None if input or output is unreadable. ``container``:
    the answer ran code in a container.

    Missing or implausible values count as 0. Compaction, and models other than the called one, are
    billed in addition to the top-level counts.
    """
    if not isinstance(usage, dict):
        return None
    own = _counts(usage)
    if own is None:
        return None
    apart, other_models = NO_USAGE, tuple[OtherUsage, ...]()
    if iterations := dicts(usage.get("iterations")):
        own, apart, other_models = _read_iterations(own, iterations)
    extras = extras_of(usage, apart.inputs, other_models)
    tools = fields_in(usage, "server_tool_use")
    if not tools and not container and extras is None and not iterations:
        return own  # nearly always
    uses = {
        "web_search": token_count(tools.get("web_search_requests")) or 0,
        "web_fetch": token_count(tools.get("web_fetch_requests")) or 0,
        "code_interpreter": int(container),
    }
    return replace_fields(own.plus(apart), more=more_counts(uses), extras=extras)


def _read_iterations(
    own: Usage, iterations: list[dict[str, Any]]
) -> tuple[Usage, Usage, tuple[OtherUsage, ...]]:
    """Return the counts of the called model, of its work outside them, and of other models.

    Without a fallback, the called model's counts are the top-level ones. With a fallback, they are
    those of its own ``message`` entries; the model of the first such entry is the called one.
    """
    fell_back = any(entry.get("type") == "fallback_message" for entry in iterations)
    called, apart, sums = "", NO_USAGE, dict[tuple[str, str], Usage]()
    if fell_back:
        own = NO_USAGE
    for entry in iterations:
        kind, counts = entry.get("type"), _counts(entry)
        if counts is None or kind not in _FEATURES or (kind == "message" and not fell_back):
            continue
        model, feature = text_field(entry, "model"), _FEATURES[kind]
        if kind == "message":
            called = called or model
        if kind == "message" and model in ("", called):
            own = own.plus(counts)
        elif not feature or not model or (len(sums) >= MAX_OTHERS and (model, feature) not in sums):
            apart = apart.plus(counts)
        else:
            sums[model, feature] = sums.get((model, feature), NO_USAGE).plus(counts)
    other_models = (OtherUsage(model, counts, feature) for (model, feature), counts in sums.items())
    return own, apart, tuple(other_models)


def read_served(usage: object) -> Served:
    """Return the conditions in a usage object."""
    if not isinstance(usage, dict):
        return NOT_REPORTED
    return served_of(usage.get("service_tier"), usage.get("speed"), usage.get("inference_geo"))


def has_container(container: object) -> bool:
    """Return true for the container of an answer that ran code."""
    return isinstance(container, dict) and bool(container.get("id"))


def _counts(usage: dict[str, Any]) -> Usage | None:
    input_tokens = token_count(usage.get("input_tokens"))
    output = token_count(usage.get("output_tokens"))
    if input_tokens is None or output is None:
        return None
    written, written_1h = _cache_writes(usage)
    details = usage.get("output_tokens_details")
    thinking = token_count(details.get("thinking_tokens")) if isinstance(details, dict) else 0
    thinking = min(thinking or 0, output)
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output - thinking,
        cache_read_tokens=token_count(usage.get("cache_read_input_tokens")) or 0,
        cache_write_tokens=written,
        cache_write_1h_tokens=written_1h,
        reasoning_tokens=thinking,
    )


def _cache_writes(usage: dict[str, Any]) -> tuple[int, int]:
    """Return the tokens cached for five minutes and for an hour, which add up to the total."""
    split = usage.get("cache_creation")
    short = long = 0
    if isinstance(split, dict):
        short = token_count(split.get("ephemeral_5m_input_tokens")) or 0
        long = token_count(split.get("ephemeral_1h_input_tokens")) or 0
    total = token_count(usage.get("cache_creation_input_tokens"))
    if total is None:
        return short, long
    long = min(long, total)
    return total - long, long


# A whole answer (see ``family.UpstreamSide``).
read_answer = AnswerReader(
    _fields, _odd_fields, _weight_of_block, has_content, counted="input_tokens"
).read


_CONTAINER = b'"container":'


class _Container(Struct, gc=False):
    id: str | None = None


class _Answer(Struct, gc=False):
    container: _Container | None = None


_decode_container = decoder(_Answer)


def issued_ids(body: bytes, stored: bool) -> list[str]:
    """Return the ids that a whole answer hands out besides its own: its container's."""
    if body.find(_CONTAINER) < 0:  # not `in`, which raises and drops an exception
        return []
    try:
        container = _decode_container(body).container
    except DECODE_ERRORS:
        return []
    return [container.id] if container is not None and container.id else []

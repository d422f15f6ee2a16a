"""The upstream side of the responses family: paths, whole answers, and the ids that they hand out.

``input_tokens`` includes cache reads and writes, ``output_tokens`` includes reasoning; the counts
of ``adapters.ir`` are disjoint.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from adapters.family import LongMark, Operation, Peek, UpstreamAnswer, Vendor
from adapters.family.counts import Tokens, extras_of, fields_in, kinds_of, served_of
from adapters.family.empty_answer import item_has_content
from adapters.family.estimate import output_weight
from adapters.family.headers import rename_model
from adapters.family.reply import AnswerReader, Reply, dicts, loads_answer
from adapters.family.stored import objects
from adapters.faults import Condition, Fault
from adapters.json.jsonio import (
    DECODE_ERRORS,
    Raw,
    Span,
    Spans,
    Struct,
    decoder,
    dumps,
    replace,
    replace_fields,
)
from adapters.upstream_errors.read import read_embedded_error
from store.values.usage import Usage, token_count


def path(operation: Operation, upstream_model: str, target: str | None) -> str:
    """Return the upstream's path of a call. ``target``: the checked id of a stored response."""
    return operation.endpoint if target is None else operation.endpoint.replace("{id}", target)


def edit_request(
    spans: Spans, read: Peek, operation: Operation, upstream_model: str, vendor: Vendor
) -> bytes:
    """Return the body with the upstream's name of the model. If the answer would be stored only
    because the client does not say, ``store`` is set to false. The same object if nothing
    changes."""
    if read.stored or not read.stored_by_default:
        return rename_model(spans, read, operation, upstream_model, vendor)
    store, edits = spans.get("store"), {}
    if store is None:
        edits[Span(spans.opening, spans.opening)] = b'"store":false,'
    else:
        edits[store] = b"false"
    model = spans.get("model")
    if model is not None and read.model != upstream_model:
        edits[model] = dumps(upstream_model)
    return replace(spans.body, edits)


class _Answer(Struct):
    """The fields of a whole answer that are read; the output items stay undecoded."""

    output: list[Raw]
    id: Any = None
    status: Any = None
    error: Any = None
    usage: Any = None
    service_tier: Any = None
    tool_usage: Any = None


_decode_answer = decoder(_Answer)
_PLAIN = (None, "completed")  # statuses of an answer that ended normally

HostedUse = tuple[str, str | int]
"""A meter, and the id of an item or container (empty if it has none), or its index."""


class _HostedItem(Struct, gc=False):
    type: Any = None
    id: Any = None
    container_id: Any = None


class _HostedAnswer(Struct, gc=False):
    output: list[_HostedItem]


_decode_hosted = decoder(_HostedAnswer)
# The same for an answer that is too large to be decoded.
LONG_MARKS = (
    LongMark(
        b'"file_search_call"',
        re.compile(rb'"(file_search_call)"'),
        b'{"type":"%b"}',
    ),
    LongMark(
        b'"container_id"',
        re.compile(rb'"container_id"[ \t\r\n]*:[ \t\r\n]*"([^"\\]{1,200})"'),
        b'{"type":"code_interpreter_call","container_id":"%b"}',
    ),
)
_HOSTED_MARKS = (b'"file_search_call"', b'"code_interpreter_call"')

_REQUEST = "invalid_request_error"
_POLICY = "content_policy"
# Error codes of this family only -> codes that all families share.
_KINDS = {
    **dict.fromkeys(("invalid_prompt", "data_residency_mismatch"), _REQUEST),
    **dict.fromkeys(("bio_policy", "misalignment_policy_violation"), _POLICY),
    "image_content_policy_violation": _POLICY,
    "vector_store_timeout": "timeout",
    **dict.fromkeys(("invalid_image", "invalid_image_format", "invalid_base64_image"), _REQUEST),
    **dict.fromkeys(("invalid_image_url", "invalid_image_mode", "image_parse_error"), _REQUEST),
    **dict.fromkeys(("image_too_large", "image_too_small", "image_file_too_large"), _REQUEST),
    **dict.fromkeys(("unsupported_image_media_type", "empty_image_file"), _REQUEST),
    **dict.fromkeys(("failed_to_download_image", "image_file_not_found"), _REQUEST),
}


def read_answer(
    body: bytes, public: str, upstream_model: str, operation: Operation
) -> UpstreamAnswer:
    """Read a response, a compaction, a count or the answer about a stored object (see
    ``family.UpstreamSide``). A response with status "failed" is an error."""
    if not operation.stored:
        return _READER.read(body, public, upstream_model, operation)
    # Any object passes unchanged, even a response that failed when it was generated.
    if not isinstance(loads_answer(body), dict):
        raise Fault(Condition.UPSTREAM_INVALID)
    return UpstreamAnswer(body, None, None, None)


def _fields(body: bytes) -> Reply | None:
    reply = _decode_answer(body)
    if reply.error or reply.status == "failed":
        return None
    usage = read_usage(reply.usage, reply.tool_usage, _hosted_in(body))
    served, plain = served_of(reply.service_tier), reply.status in _PLAIN
    return Reply(reply.id, reply.usage, [*reply.output], usage, served, plain)


def _odd_fields(answer: Any) -> Reply:
    output = answer.get("output") if isinstance(answer, dict) else None
    if not isinstance(output, list) or answer.get("error") or answer.get("status") == "failed":
        raise read_failure(answer)
    usage = read_usage(answer.get("usage"), answer.get("tool_usage"), hosted_uses(output))
    served = served_of(answer.get("service_tier"))
    plain = answer.get("status") in _PLAIN
    return Reply(answer.get("id"), answer.get("usage"), output, usage, served, plain)


def _hosted_in(body: bytes) -> Collection[HostedUse]:
    if max(map(body.find, _HOSTED_MARKS)) < 0:  # not `in`, which raises and drops an exception
        return ()  # nearly always
    items = _decode_hosted(body).output
    return _named(hosted_use(item.type, item.id, item.container_id) for item in items)


def hosted_uses(output: object) -> set[HostedUse]:
    """Return the uses of hosted tools among the items of an output."""
    items = dicts(output)
    return _named(
        hosted_use(item.get("type"), item.get("id"), item.get("container_id")) for item in items
    )


def _named(uses: Iterable[HostedUse | None]) -> set[HostedUse]:
    """Return the uses; those without a name are told apart by index."""
    return {(meter, name or at) for at, (meter, name) in enumerate(filter(None, uses))}


def hosted_use(kind: object, item_id: object, container_id: object) -> HostedUse | None:
    """Return the use of a hosted tool that an output item represents: each file search is one, all
    calls in a container together are one."""
    if kind == "file_search_call":
        return "file_search", item_id if isinstance(item_id, str) else ""
    if kind == "code_interpreter_call":
        return "code_interpreter", container_id if isinstance(container_id, str) else "auto"
    return None


def read_failure(answer: object) -> Fault:
    """Return the fault of a decoded body or event that reports a failed response; UPSTREAM_INVALID
    if it gives no reason."""
    error = _error_of(answer)
    code = error.get("code")
    kind = _KINDS.get(code) if isinstance(code, str) else None
    if kind is not None:
        answer = {"error": {**error, "type": kind}}
    return read_embedded_error(answer).fault


def _error_of(answer: object) -> dict[str, Any]:
    """Return the innermost error object: of a response in an event, of a body, or the answer."""
    if not isinstance(answer, dict):
        return {}
    response = answer.get("response")
    for place in (
        response.get("error") if isinstance(response, dict) else None,
        answer.get("error"),
    ):
        if isinstance(place, dict):
            return place
    return answer


def weight_of_item(item: dict[str, Any]) -> int:
    """Return the output weight of all readable texts of an output item."""
    return sum(output_weight(text) for text in _texts(item))


def _texts(item: dict[str, Any]) -> Iterator[str]:
    """Yield text and refusals of a message, reasoning, and the arguments of a call."""
    yield from _strings(item, ("arguments", "input", "code"))
    for name in ("content", "summary"):
        parts = item.get(name)
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                yield from _strings(part, ("text", "refusal"))


def _strings(holder: dict[str, Any], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        value = holder.get(name)
        if isinstance(value, str):
            yield value


def read_usage(
    usage: object, tool_usage: object = None, hosted: Collection[HostedUse] = ()
) -> Usage | None:
    """Return the counts of a usage object; None if input or output is unreadable.

    Missing or implausible details count as 0, and a part is never larger than its whole. Tokens
    written to the cache for twelve hours become ``cache_write_1h_tokens``. Tokens of the model that
    makes pictures (``tool_usage``) are added to the counts of this one.
    """
    if not isinstance(usage, dict):
        return None
    input_tokens = token_count(usage.get("input_tokens"))
    output_tokens = token_count(usage.get("output_tokens"))
    if input_tokens is None or output_tokens is None:
        return None
    tokens = _tokens(usage, input_tokens, output_tokens)
    if not tool_usage and not hosted:
        return tokens.usage(extras=extras_of(usage))
    uses = Counter(meter for meter, _ in hosted)
    searches = fields_in(tool_usage, "web_search").get("num_requests")
    uses["web_search"] = token_count(searches) or 0
    pictures = _picture_tokens(fields_in(tool_usage, "image_gen"))
    counts = tokens.usage(uses).plus(pictures)
    return replace_fields(counts, extras=extras_of(usage, pictures.inputs))


def _tokens(usage: Mapping[str, Any], input_tokens: int, output_tokens: int) -> Tokens:
    details = fields_in(usage, "input_tokens_details")
    cached = min(token_count(details.get("cached_tokens")) or 0, input_tokens)
    short, long = _cache_writes(details, input_tokens - cached)
    of_output = fields_in(usage, "output_tokens_details")
    return Tokens(
        input_tokens,
        output_tokens,
        cached=cached,
        written=short,
        written_1h=long,
        reasoning=token_count(of_output.get("reasoning_tokens")) or 0,
        input_kinds=kinds_of(details),
        output_kinds=kinds_of(of_output),
    )


def _picture_tokens(usage: Mapping[str, Any]) -> Usage:
    """Return the counts of the model that makes pictures. Its output counts as pictures unless
    reported otherwise."""
    input_tokens = token_count(usage.get("input_tokens")) or 0
    output_tokens = token_count(usage.get("output_tokens")) or 0
    tokens = _tokens(usage, input_tokens, output_tokens)
    if not fields_in(usage, "output_tokens_details"):
        tokens = replace_fields(tokens, output_kinds={"image": output_tokens})
    return tokens.usage()


def _cache_writes(details: Mapping[str, Any], limit: int) -> tuple[int, int]:
    """Return the tokens written to the cache for half an hour and for twelve hours. Their sum is
    the reported total, or otherwise the sum of the split, and at most ``limit``."""
    split = fields_in(details, "cache_write_tokens_details")
    long = token_count(split.get("ttl_12h_tokens")) or 0
    total = token_count(details.get("cache_write_tokens"))
    if total is None:
        total = long + (token_count(split.get("ttl_30m_tokens")) or 0)
    total = min(total, limit)
    long = min(long, total)
    return total - long, long


_READER = AnswerReader(
    _fields,
    _odd_fields,
    weight_of_item,
    item_has_content,
    counted="input_tokens",
    fault_of=read_failure,
)
_HANDED_OUT = (b'"container_id"', b'"conversation":')


class _Environment(Struct, gc=False):
    container_id: str | None = None


class _ItemIds(Struct, gc=False):
    id: str | None = None
    container_id: str | None = None
    environment: _Environment | None = None


class _ConversationId(Struct, gc=False):
    id: str | None = None


class _AnswerIds(Struct, gc=False):
    output: list[_ItemIds]
    conversation: _ConversationId | None = None


_decode_ids = decoder(_AnswerIds)


def issued_ids(body: bytes, stored: bool) -> list[str]:
    """Return the ids that a whole answer hands out besides its own: those of its conversation and
    containers, and of its items if it is ``stored``."""
    if not stored and max(map(body.find, _HANDED_OUT)) < 0:
        return []
    try:
        answer = _decode_ids(body)
    except DECODE_ERRORS:
        return []
    ids = [answer.conversation.id if answer.conversation is not None else None]
    for item in answer.output:
        environment = item.environment
        ids += (
            item.id if stored else None,
            item.container_id,
            environment.container_id if environment is not None else None,
        )
    return [item_id for item_id in ids if item_id]


def issued_by_event(data: dict[str, Any], stored: bool) -> Iterator[object]:
    """Yield the ids that a stream event hands out besides the response's own."""
    for path, response in objects(data.get("response"), ""):
        for _, conversation in objects(response.get("conversation"), path):
            yield conversation.get("id")
    for path, item in objects(data.get("item"), ""):
        yield item.get("id") if stored else None
        yield item.get("container_id")
        for _, environment in objects(item.get("environment"), path):
            yield environment.get("container_id")

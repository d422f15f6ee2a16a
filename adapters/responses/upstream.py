"""The upstream side of the responses family: paths, whole answers, and the ids that these hand out.

``input_tokens`` includes cache reads and writes, ``output_tokens`` includes reasoning; the counts
of ``adapters.ir`` are disjoint.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from adapters.family import Operation, Peek, UpstreamAnswer, Vendor
from adapters.family.estimate import output_weight
from adapters.family.headers import rename_model
from adapters.family.reply import AnswerReader, ReplyFields, loads_answer
from adapters.family.stored import objects
from adapters.faults import Condition, Fault
from adapters.json.jsonio import DECODE_ERRORS, Raw, Span, Spans, Struct, decoder, dumps, replace
from adapters.upstream_errors.read import read_embedded_error
from store.values.usage import Usage, token_count


def path(operation: Operation, upstream_model: str, target: str | None) -> str:
    """Return the upstream's path of a call; ``target``: the checked id of a stored response."""
    return operation.endpoint if target is None else operation.endpoint.replace("{id}", target)


def edit_request(
    spans: Spans, read: Peek, operation: Operation, upstream_model: str, vendor: Vendor
) -> bytes:
    """Return the body with the upstream's name of the model, and with ``store`` false where the
    answer would be stored only because the client does not say so; the same object when nothing has
    to change."""
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
    """The fields that are read of a whole answer; the output items stay undecoded."""

    output: list[Raw]
    id: Any = None
    status: Any = None
    error: Any = None
    usage: Any = None


_decode_answer = decoder(_Answer)

_REQUEST = "invalid_request_error"
_POLICY = "content_policy"
# Error codes that only this family has -> codes that all families know.
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
    """Read a response, a compaction, a count or the answer about something stored (see
    ``family.UpstreamSide``); a response whose status is "failed" is an error."""
    if not operation.stored:
        return _READER.read(body, public, upstream_model, operation)
    # Any object passes as it is, also a response that failed when it was generated.
    if not isinstance(loads_answer(body), dict):
        raise Fault(Condition.UPSTREAM_INVALID)
    return UpstreamAnswer(body, None, None, None)


def _fields(body: bytes) -> ReplyFields | None:
    reply = _decode_answer(body)
    failed = reply.error or reply.status == "failed"
    return None if failed else (reply.id, reply.usage, [*reply.output])


def _odd_fields(answer: Any) -> ReplyFields:
    output = answer.get("output") if isinstance(answer, dict) else None
    if not isinstance(output, list) or answer.get("error") or answer.get("status") == "failed":
        raise read_failure(answer)
    return answer.get("id"), answer.get("usage"), output


def read_failure(answer: object) -> Fault:
    """Return the fault of a decoded body or event that says that the response failed;
    UPSTREAM_INVALID when it does not say why."""
    error = _error_of(answer)
    code = error.get("code")
    kind = _KINDS.get(code) if isinstance(code, str) else None
    if kind is not None:
        answer = {"error": {**error, "type": kind}}
    return read_embedded_error(answer).fault


def _error_of(answer: object) -> dict[str, Any]:
    """Return the innermost error object: of a response in an event, of a body, or itself."""
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


def read_usage(usage: object) -> Usage | None:
    """Return the counts of a usage object; None when input or output cannot be read.

    Details that are missing or implausible count as 0, and a part is never larger than its whole.
    Tokens written to the cache for twelve hours are the hub's ``cache_write_1h_tokens``.
    """
    if not isinstance(usage, dict):
        return None
    input_tokens = token_count(usage.get("input_tokens"))
    output_tokens = token_count(usage.get("output_tokens"))
    if input_tokens is None or output_tokens is None:
        return None
    details = _details(usage, "input_tokens_details")
    cached = min(token_count(details.get("cached_tokens")) or 0, input_tokens)
    short, long = _cache_writes(details, input_tokens - cached)
    details = _details(usage, "output_tokens_details")
    reasoning = min(token_count(details.get("reasoning_tokens")) or 0, output_tokens)
    return Usage(
        input_tokens=input_tokens - cached - short - long,
        output_tokens=output_tokens - reasoning,
        cache_read_tokens=cached,
        cache_write_tokens=short,
        cache_write_1h_tokens=long,
        reasoning_tokens=reasoning,
    )


def _cache_writes(details: dict[str, Any], limit: int) -> tuple[int, int]:
    """Return the tokens written to the cache for half an hour and for twelve; their sum is the
    reported total, else that of the split, at most ``limit``."""
    split = _details(details, "cache_write_tokens_details")
    long = token_count(split.get("ttl_12h_tokens")) or 0
    total = token_count(details.get("cache_write_tokens"))
    if total is None:
        total = long + (token_count(split.get("ttl_30m_tokens")) or 0)
    total = min(total, limit)
    long = min(long, total)
    return total - long, long


def _details(holder: dict[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


_READER = AnswerReader(
    _fields,
    _odd_fields,
    read_usage,
    weight_of_item,
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
    """Return the ids that a whole answer hands out besides its own: of its conversation and
    containers, and of its items when it is ``stored``."""
    if not stored and not any(mark in body for mark in _HANDED_OUT):
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
    """Yield the ids that an event of a stream hands out besides the response's own."""
    for path, response in objects(data.get("response"), ""):
        for _, conversation in objects(response.get("conversation"), path):
            yield conversation.get("id")
    for path, item in objects(data.get("item"), ""):
        yield item.get("id") if stored else None
        yield item.get("container_id")
        for _, environment in objects(item.get("environment"), path):
            yield environment.get("container_id")

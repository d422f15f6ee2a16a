"""Whole answers of the messages family, and what they share with the stream: usage and text.

``input_tokens`` excludes cache reads and writes; ``output_tokens`` includes thinking; the hub's
counts are disjoint. Imported by this folder's ``stream`` and ``__init__``.
"""

from collections.abc import Iterator
from typing import Any

from adapters.family import Answer
from adapters.family.estimate import output_weight, tokens_of_weight
from adapters.family.ir import MAX_TOKENS, Usage, token_count
from adapters.faults import Condition, Fault
from adapters.json.jsonio import (
    DECODE_ERRORS,
    Raw,
    Struct,
    decoder,
    dumps,
    loads_loose,
    locate,
    replace,
)
from adapters.upstream_errors.read import read_embedded_error


class _Reply(Struct):
    """The fields that are read of a whole answer; the blocks stay undecoded."""

    type: str
    content: list[Raw]
    id: Any = None
    usage: Any = None


_decode = decoder(_Reply)


def read(body: bytes, public: str, upstream_model: str) -> Answer:
    """Read a whole answer: usage, id, and the model's public name in place of the upstream's.

    Raises Fault E30 when it is no answer, or the condition of an error that stands in its place.
    """
    upstream_id, usage, blocks = _fields(body)
    units = 0
    counts = read_usage(usage)
    if counts is None:
        units = tokens_of_weight(sum(_weight_of_block(block) for block in blocks))
    if public != upstream_model:
        place = locate(body, "model")
        if place is not None and body.startswith(b'"', place.start):
            body = replace(body, {place: dumps(public)})
    return Answer(body, counts, usage, upstream_id if isinstance(upstream_id, str) else None, units)


def read_count(body: bytes) -> Answer:
    """Read the answer to a request to count tokens; it costs nothing and is passed as it is."""
    try:
        answer = loads_loose(body)
    except ValueError:
        raise Fault(Condition.UPSTREAM_INVALID) from None
    if not isinstance(answer, dict) or token_count(answer.get("input_tokens")) is None:
        raise read_embedded_error(answer).fault
    return Answer(body, None, None, None)


def _fields(body: bytes) -> tuple[object, object | None, list[Any]]:
    """Id, usage and blocks; a block is a Raw, or decoded when the body was odd."""
    try:
        if not body.isascii():
            body.decode()  # what is skipped is not checked by the decoder
        reply = _decode(body)
    except DECODE_ERRORS:
        return _odd_fields(body)
    if reply.type == "error":
        return _odd_fields(body)
    return reply.id, reply.usage, list(reply.content)


def _odd_fields(body: bytes) -> tuple[object, object | None, list[Any]]:
    try:
        answer = loads_loose(body)
    except ValueError:
        raise Fault(Condition.UPSTREAM_INVALID) from None
    content = answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(content, list) or answer.get("type") == "error":
        raise read_embedded_error(answer).fault
    return answer.get("id"), answer.get("usage"), content


def _weight_of_block(block: Any) -> int:
    try:
        if isinstance(block, Raw):
            block = loads_loose(bytes(block))
    except ValueError:  # nested deeper than the loose reader goes
        return 0
    return sum(output_weight(text) for text in _texts(block))


def _texts(block: object) -> Iterator[str]:
    if not isinstance(block, dict):
        return
    for name in ("text", "thinking"):
        if isinstance(block.get(name), str):
            yield block[name]
    if isinstance(block.get("input"), dict):
        try:
            yield dumps(block["input"]).decode("ascii")
        except OverflowError:  # an infinity or a depth that cannot be written
            return


def read_usage(usage: object) -> Usage | None:
    """The counts of a usage object; None when input or output cannot be read.

    What is missing or cannot be meant otherwise counts as 0. Compaction is billed beside the
    top-level numbers, so its iterations are added.
    """
    if not isinstance(usage, dict):
        return None
    own = _counts(usage)
    if own is None:
        return None
    iterations = usage.get("iterations")
    for iteration in iterations if isinstance(iterations, list) else ():
        if isinstance(iteration, dict) and iteration.get("type") == "compaction":
            own = _sum(own, _counts(iteration) or Usage())
    return own


def _counts(usage: dict[str, Any]) -> Usage | None:
    given = token_count(usage.get("input_tokens"))
    output = token_count(usage.get("output_tokens"))
    if given is None or output is None:
        return None
    written, written_1h = _cache_writes(usage)
    details = usage.get("output_tokens_details")
    thinking = token_count(details.get("thinking_tokens")) if isinstance(details, dict) else 0
    thinking = min(thinking or 0, output)
    return Usage(
        input_tokens=given,
        output_tokens=output - thinking,
        cache_read_tokens=token_count(usage.get("cache_read_input_tokens")) or 0,
        cache_write_tokens=written,
        cache_write_1h_tokens=written_1h,
        reasoning_tokens=thinking,
    )


def _cache_writes(usage: dict[str, Any]) -> tuple[int, int]:
    """Tokens written to the cache for five minutes and for an hour; they add up to the total."""
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


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        min(one.input_tokens + other.input_tokens, MAX_TOKENS),
        min(one.output_tokens + other.output_tokens, MAX_TOKENS),
        min(one.cache_read_tokens + other.cache_read_tokens, MAX_TOKENS),
        min(one.cache_write_tokens + other.cache_write_tokens, MAX_TOKENS),
        min(one.cache_write_1h_tokens + other.cache_write_1h_tokens, MAX_TOKENS),
        min(one.reasoning_tokens + other.reasoning_tokens, MAX_TOKENS),
    )

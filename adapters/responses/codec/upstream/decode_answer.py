"""Whole answers of upstreams, in the hub's words. Imported by this folder's ``__init__``."""

from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Finish, Logprob
from adapters.ir.parts import Part, Refusal, ToolCall
from adapters.ir.usage import token_count
from adapters.json.jsonio import loads_or_none
from adapters.json.structure import VALUES_AT_ONCE, Steps
from adapters.responses.codec.upstream.read_items import dicts, finish_of, parts_of, read_logprobs


def decode_answer(body: bytes) -> Steps[tuple[Choice, ...]]:
    """The one choice of a response, in steps (see ``family.codec.UpstreamCodec``)."""
    response = loads_or_none(body)
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        raise Fault(Condition.UPSTREAM_INVALID)
    parts: list[Part] = []
    logprobs: list[Logprob] = []
    for item in dicts(response["output"]):
        yield False
        for part_of_item in parts_of(item):
            if not len(parts) % VALUES_AT_ONCE:
                yield False
            parts.append(part_of_item)
        if item.get("type") == "message":
            for part in dicts(item.get("content")):
                logprobs += read_logprobs(part.get("logprobs"))
    finish, detail = finish_of(response)
    if finish == "stop":
        finish = _by_parts(parts)
    return (Choice(tuple(parts), finish, detail=detail, logprobs=tuple(logprobs)),)


def decode_count(body: bytes) -> int:
    """The tokens that the upstream has counted."""
    said = loads_or_none(body)
    tokens = token_count(said.get("input_tokens")) if isinstance(said, dict) else None
    if tokens is None:
        raise Fault(Condition.UPSTREAM_INVALID)
    return tokens


def _by_parts(parts: list[Part]) -> Finish:
    if any(isinstance(part, ToolCall) for part in parts):
        return "tools"
    return "refusal" if any(isinstance(part, Refusal) for part in parts) else "stop"

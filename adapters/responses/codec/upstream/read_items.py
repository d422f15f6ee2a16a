"""Output items of upstreams, whole ones, read leniently.

Imported by ``decode_answer`` and ``decode_stream``.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from adapters.ir.answer import MAX_CITATIONS, MAX_LOGPROBS, Finish, Logprob
from adapters.ir.parts import Citation, Part, Reasoning, Refusal, Text, ToolCall
from adapters.json.jsonio import compact
from adapters.responses.annotations import read_citation
from adapters.responses.codec.upstream.opaque import seal

CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
}
_REASONS: dict[str, Finish] = {"max_output_tokens": "length", "content_filter": "filter"}


def parts_of(item: dict[str, Any]) -> Iterable[Part]:
    """The parts that an item stands for; none of what no other family has a word for."""
    kind = text_field(item, "type")
    if kind == "message":
        return message_parts(item)
    if kind in CALLS:
        return [read_call(item)]
    if kind == "reasoning":
        thought = read_reasoning(item)
        return [thought] if thought.text or thought.opaque else []
    return []


def message_parts(item: dict[str, Any]) -> Iterator[Part]:
    """Texts and refusals of a message that say something."""
    for part in dicts(item.get("content")):
        refusal, text = part.get("refusal"), part.get("text")
        if part.get("type") == "refusal" and isinstance(refusal, str) and refusal:
            yield Refusal(refusal)
        elif isinstance(text, str) and text:
            yield Text(text, citations=citations_of(part))


def citations_of(part: dict[str, Any]) -> tuple[Citation, ...]:
    """The sources of a text."""
    found = map(read_citation, dicts(part.get("annotations"))[:MAX_CITATIONS])
    return tuple(one for one in found if one is not None)


def read_call(item: dict[str, Any]) -> ToolCall:
    """A call; what stands for its id when it has none is the item's own."""
    kind = str(item.get("type"))
    said = item.get(CALLS[kind])
    arguments = said if isinstance(said, str) else "" if said is None else _as_text(said)
    return ToolCall(
        text_field(item, "call_id") or text_field(item, "id"),
        text_field(item, "name"),
        arguments,
        custom=kind == "custom_tool_call",
        namespace=text_field(item, "namespace"),
    )


def read_reasoning(item: dict[str, Any]) -> Reasoning:
    """A thought: its summary, else what is shown of it in full."""
    summary = "\n\n".join(filter(None, texts_of(item.get("summary"))))
    text = summary or "\n\n".join(filter(None, texts_of(item.get("content"))))
    return Reasoning(text, summary=bool(summary), opaque=seal(item))


def read_logprobs(said: object) -> tuple[Logprob, ...]:
    """Tokens with their probabilities, those that can be read."""
    found = []
    for one in dicts(said)[:MAX_LOGPROBS]:
        token = _logprob(one)
        if token is not None:
            top = [_logprob(other) for other in dicts(one.get("top_logprobs"))]
            others = tuple(other for other in top if other is not None)
            found.append(Logprob(token.token, token.logprob, others))
    return tuple(found)


def finish_of(response: dict[str, Any]) -> tuple[Finish, str]:
    """Why a response ended, and the vendor's word for it."""
    if response.get("status") != "incomplete":
        return "stop", ""
    details = response.get("incomplete_details")
    reason = text_field(details, "reason") if isinstance(details, dict) else ""
    return _REASONS.get(reason, "length"), reason


def texts_of(parts: object) -> list[str]:
    """The texts of the parts of a thought."""
    texts = [part.get("text") for part in dicts(parts)]
    return [text for text in texts if isinstance(text, str)]


def dicts(value: object) -> list[dict[str, Any]]:
    """The objects of an array; none of anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_field(holder: dict[str, Any], name: str) -> str:
    """A string; empty when it is missing or anything else."""
    value = holder.get(name)
    return value if isinstance(value, str) else ""


def _logprob(one: dict[str, Any]) -> Logprob | None:
    token, logprob = one.get("token"), one.get("logprob")
    if not isinstance(token, str) or isinstance(logprob, bool):
        return None
    # Not what JSON has no word for, which some vendors send all the same.
    if not isinstance(logprob, int | float) or not -1e9 < logprob <= 1e9:
        return None
    return Logprob(token, float(logprob))


def _as_text(value: object) -> str:
    try:
        return compact(value)
    except (OverflowError, ValueError, TypeError):
        return ""

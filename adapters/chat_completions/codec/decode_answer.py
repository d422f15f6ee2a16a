"""A whole answer of an upstream of the chat completions family, and what its streams share with it.

Vendors differ in much: what cannot be read is passed over, it is no error. Imported by
``decode_stream`` and this folder's ``__init__``.
"""

from collections.abc import Iterator
from typing import Any

from adapters.family.reply import loads_answer
from adapters.faults import Condition, Fault
from adapters.ir.answer import MAX_CITATIONS, MAX_LOGPROBS, Choice, Finish, Logprob
from adapters.ir.parts import Citation, Part, Reasoning, Refusal, Text, ToolCall
from adapters.json.jsonio import compact
from adapters.json.structure import VALUES_AT_ONCE, Steps

MAX_CHOICES = 128  # which the family has; indexes above it are not believed
_MAX_TOP_LOGPROBS = 20
_UNLIKELY = -9999.0  # the family's word for what has next to no probability

_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "filter",
    "error": "error",
}


def decode_answer(body: bytes) -> Steps[tuple[Choice, ...]]:
    """The choices in their order, in steps (see ``family.codec.UpstreamCodec``)."""
    said = loads_answer(body)
    choices = said.get("choices") if isinstance(said, dict) else None
    listed = choices[:MAX_CHOICES] if isinstance(choices, list) else []
    found = [one for one in listed if isinstance(one, dict)]
    if not found:
        raise Fault(Condition.UPSTREAM_INVALID)
    found.sort(key=index_of)
    decoded: list[Choice] = []
    for choice in found:
        decoded.append((yield from _choice(choice)))
    return tuple(decoded)


def index_of(choice: dict[str, Any]) -> int:
    """The index of a choice; 0 for one that is none."""
    index = choice.get("index")
    return index if type(index) is int and 0 <= index < MAX_CHOICES else 0


def finish_of(reason: object) -> Finish:
    """Why a choice ended; an unknown reason is that it was done."""
    return _FINISHES.get(reason, "stop") if isinstance(reason, str) else "stop"


def text_of(value: object) -> str:
    """The text of a string or of a list of parts; empty for anything else."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    texts = (part.get("text") if isinstance(part, dict) else part for part in value)
    return "".join(text for text in texts if isinstance(text, str))


def thought_of(message: dict[str, Any]) -> str:
    """The reasoning text of a message or delta; some vendors send it under both names."""
    for name in ("reasoning_content", "reasoning"):
        text = message.get(name)
        if isinstance(text, str) and text:
            return text
    return ""


def arguments_of(value: object) -> str:
    """Arguments as JSON text, also where a vendor sends the object itself."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict | list):
        return ""
    try:
        return compact(value)
    except OverflowError:  # an infinity, or deeper than can be written
        return ""


def signature_of(call: dict[str, Any]) -> str:
    """The signature that Google's endpoint of this family has on a call; empty without one."""
    extra = call.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    return signature if isinstance(signature, str) else ""


def citations_of(message: dict[str, Any]) -> tuple[Citation, ...]:
    """The web pages that a message or delta refers to."""
    annotations = message.get("annotations")
    found = []
    for annotation in annotations[:MAX_CITATIONS] if isinstance(annotations, list) else ():
        said = annotation.get("url_citation") if isinstance(annotation, dict) else None
        if isinstance(said, dict) and isinstance(said.get("url"), str):
            title = said.get("title")
            found.append(
                Citation(
                    said["url"],
                    title if isinstance(title, str) else "",
                    _offset(said.get("start_index")),
                    _offset(said.get("end_index")),
                )
            )
    return tuple(found)


def logprobs_of(choice: dict[str, Any]) -> tuple[Logprob, ...]:
    """The log probabilities of the tokens of a choice, or of its delta."""
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    found = []
    for one in content[:MAX_LOGPROBS] if isinstance(content, list) else ():
        said = one.get("top_logprobs") if isinstance(one, dict) else None
        tops = said[:_MAX_TOP_LOGPROBS] if isinstance(said, list) else []
        top = tuple(filter(None, map(_logprob, tops)))
        if (token := _logprob(one, top)) is not None:
            found.append(token)
    return tuple(found)


def _choice(choice: dict[str, Any]) -> Steps[Choice]:
    message = choice.get("message")
    parts: list[Part] = []
    for part in _parts(message) if isinstance(message, dict) else ():
        if not len(parts) % VALUES_AT_ONCE:
            yield False
        parts.append(part)
    finish = finish_of(choice.get("finish_reason"))
    return Choice(tuple(parts), finish, logprobs=logprobs_of(choice))


def _parts(message: dict[str, Any]) -> Iterator[Part]:
    if thought := thought_of(message):
        yield Reasoning(thought)
    if text := text_of(message.get("content")):
        yield Text(text, citations=citations_of(message))
    if refusal := text_of(message.get("refusal")):
        yield Refusal(refusal)
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            yield from _call(call)
    function = message.get("function_call")
    if isinstance(function, dict) and isinstance(function.get("name"), str):
        yield ToolCall("", function["name"], arguments_of(function.get("arguments")))


def _call(call: dict[str, Any]) -> Iterator[Part]:
    custom, function = call.get("custom"), call.get("function")
    said = custom if isinstance(custom, dict) else function
    if not isinstance(said, dict) or not isinstance(said.get("name"), str) or not said["name"]:
        return
    if signature := signature_of(call):
        yield Reasoning("", opaque=signature)
    call_id = call.get("id")
    call_id = call_id if isinstance(call_id, str) else ""
    if isinstance(custom, dict):
        yield ToolCall(call_id, said["name"], text_of(said.get("input")), custom=True)
    else:
        yield ToolCall(call_id, said["name"], arguments_of(said.get("arguments")))


def _logprob(said: object, top: tuple[Logprob, ...] = ()) -> Logprob | None:
    if not isinstance(said, dict):
        return None
    token, value = said.get("token"), said.get("logprob")
    if not isinstance(token, str) or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # What is infinite, or not a number, cannot be written; the family has -9999 for it.
    return Logprob(token, float(value) if abs(value) < -_UNLIKELY else _UNLIKELY, top)


def _offset(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None

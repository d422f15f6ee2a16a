"""The upstream side of the generate-content family: requests, answers, usage, lists of models.

``promptTokenCount`` includes cache reads and excludes tokens of tool results;
``candidatesTokenCount`` excludes thoughts; our counts are disjoint. Zeros may be absent.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from adapters.family import Operation, Peek, Vendor
from adapters.family.estimate import output_weight
from adapters.family.reply import (
    AnswerReader,
    ReplyFields,
    embedded_fault,
    list_names,
    list_page,
)
from adapters.faults import Condition, Fault
from adapters.generate_content.client import METHODS, MODELS, model_mentions, top_level_object
from adapters.generate_content.parts import COUNTED
from adapters.json.jsonio import (
    Raw,
    Span,
    Spans,
    Struct,
    decoder,
    dumps,
    loads_or_none,
    locate,
    replace,
)
from store.values.usage import MAX_TOKENS, Usage, token_count

_TUNED_MODELS = "tunedModels/"

_PATH_NAME = re.compile(r"(?!/)(?!.*//)(?!.*\.\.)[A-Za-z0-9._:/@=-]{1,128}(?<!/)")


def edit_request(
    spans: Spans, read: Peek, operation: Operation, upstream_model: str, vendor: Vendor
) -> bytes:
    """Return the body for the upstream; the same object when nothing has to change.

    Some clients repeat the model of the path in the body, where an upstream that calls it by
    another name would refuse it; ``peek`` has refused any other model.
    """
    if read.model == upstream_model:
        return spans.body
    edits: dict[Span, bytes] = {}
    for fields, name in model_mentions(spans, top_level_object(spans, COUNTED)):
        value = fields.value(name)
        if value == read.model:
            edits[fields.places[name]] = dumps(upstream_model.removeprefix(MODELS))
        elif value == MODELS + read.model:
            edits[fields.places[name]] = dumps(_resource(upstream_model))
    return replace(spans.body, edits) if edits else spans.body


def path(operation: Operation, upstream_model: str, target: str | None) -> str:
    """Return the path with its query. Raise Fault CHANNEL_MISCONFIGURED when the model's name
    cannot stand in a path.

    Slashes and colons of the name stay as they are, the way the SDKs send them.
    """
    resource = _resource(upstream_model)
    if _PATH_NAME.fullmatch(resource.removeprefix(MODELS)) is None:
        raise Fault(Condition.CHANNEL_MISCONFIGURED, model=target)
    verb = operation.endpoint.rpartition(":")[2]
    events = operation.job == "stream" and operation.framing == "sse"
    return f"/v1beta/{resource}:{verb}" + ("?alt=sse" if events else "")


def _resource(upstream_model: str) -> str:
    """Return the model's name as the vendor's paths have it: models/x or tunedModels/x."""
    if upstream_model.startswith((MODELS, _TUNED_MODELS)):
        return upstream_model
    return MODELS + upstream_model


def read_models(body: bytes) -> list[str]:
    """Return the models in a page that can generate; raise UPSTREAM_INVALID when it is none."""
    entries = [entry for entry in list_page(body, "models") if _generates(entry)]
    return [name.removeprefix("models/") for name in list_names(entries, "name")]


def _generates(entry: Mapping[str, Any]) -> bool:
    methods = entry.get("supportedGenerationMethods")
    return not isinstance(methods, list) or METHODS[0] in methods


MODEL_FIELD = "modelVersion"


class _Reply(Struct):
    """The fields that are read of a whole answer; the candidates stay undecoded."""

    candidates: list[Raw]
    usageMetadata: Any = None
    responseId: Any = None
    error: Any = None


_decode_reply = decoder(_Reply)


def _rename(body: bytes, public: str, upstream_model: str) -> bytes:
    place = locate(body, MODEL_FIELD)
    if place is None:
        return body
    name = renamed(body[place.start : place.end], public, upstream_model)
    return body if name is None else replace(body, {place: name})


def renamed(value: bytes, public: str, upstream_model: str) -> bytes | None:
    """Return the JSON value to put in place of ``modelVersion``; None when it names another model.

    Only the name that was sent to the upstream is replaced: a version behind it says more.
    """
    version = loads_or_none(value)
    if not isinstance(version, str):
        return None
    if version.removeprefix(MODELS) != upstream_model.removeprefix(MODELS):
        return None
    return dumps(MODELS + public if version.startswith(MODELS) else public)


def _fields(body: bytes) -> ReplyFields | None:
    reply = _decode_reply(body)
    if reply.error is not None or not reply.candidates:
        return None
    return reply.responseId, reply.usageMetadata, [*reply.candidates]


def _odd_fields(answer: Any) -> ReplyFields:
    if not isinstance(answer, dict) or answer.get("error") or not _is_answer(answer):
        raise embedded_fault(answer)
    candidates = answer.get("candidates")
    listed = candidates if isinstance(candidates, list) else []
    return answer.get("responseId"), answer.get("usageMetadata"), listed


def _is_answer(answer: dict[str, Any]) -> bool:
    candidates = answer.get("candidates")
    if isinstance(candidates, list) and candidates:
        return True
    return any(isinstance(answer.get(name), dict) for name in ("promptFeedback", "usageMetadata"))


def weight_of_candidate(candidate: dict[str, Any]) -> int:
    """Return the output weight of a candidate, as far as it is readable."""
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    weight = 0
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            weight += sum(output_weight(text) for text in _texts(part))
    return weight


def _texts(part: dict[str, Any]) -> Iterator[str]:
    if isinstance(part.get("text"), str):
        yield part["text"]
    call = part.get("functionCall")
    if not isinstance(call, dict):
        return
    for name in ("args", "partialArgs"):
        if call.get(name):
            try:
                yield dumps(call[name]).decode("ascii")
            except OverflowError:  # an infinity or a depth that cannot be written
                continue


def read_usage(usage: object) -> Usage | None:
    """Return the counts of a usage object; None when prompt or output cannot be read.

    Output that is not reported is what the total leaves for it. Details that are missing or cannot
    be meant count as 0, and cache reads are never more than the prompt.
    """
    if not isinstance(usage, dict):
        return None
    prompt = token_count(usage.get("promptTokenCount"))
    output = token_count(usage.get("candidatesTokenCount"))
    total = token_count(usage.get("totalTokenCount"))
    tools = token_count(usage.get("toolUsePromptTokenCount")) or 0
    thoughts = token_count(usage.get("thoughtsTokenCount")) or 0
    if prompt is None or (output is None and total is None):
        return None
    if output is None:
        output = max((total or 0) - prompt - tools - thoughts, 0)
    cached = min(token_count(usage.get("cachedContentTokenCount")) or 0, prompt)
    return Usage(
        input_tokens=min(prompt - cached + tools, MAX_TOKENS),
        output_tokens=output,
        cache_read_tokens=cached,
        reasoning_tokens=thoughts,
    )


# A whole answer (see ``family.UpstreamSide``); a blocked prompt is one without candidates.
read_answer = AnswerReader(
    _fields, _odd_fields, read_usage, weight_of_candidate, _rename, "totalTokens"
).read

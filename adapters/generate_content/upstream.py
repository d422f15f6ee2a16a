"""The upstream side of the generate_content family: requests, answers, usage, lists of models.

``promptTokenCount`` includes cache reads and excludes tokens of tool results;
``candidatesTokenCount`` excludes thoughts; the gateway's counts are disjoint. Zeros may be absent.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from adapters.family import LongMark, Operation, Peek, Vendor
from adapters.family.counts import (
    KINDS,
    MAX_USES,
    NO_KINDS,
    NO_USES,
    Kinds,
    Tokens,
    served_of,
)
from adapters.family.empty_answer import has_content
from adapters.family.estimate import output_weight
from adapters.family.reply import (
    AnswerReader,
    Reply,
    dicts,
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
from store.values.usage import MAX_TOKENS, NOT_REPORTED, Served, Usage, token_count

TIER_HEADER = "x-gemini-service-tier"
_ON_DEMAND = "ON_DEMAND"  # prefix of Vertex's traffic types
_GROUNDING = b'"groundingMetadata"'
_TUNED_MODELS = "tunedModels/"

_PATH_NAME = re.compile(r"(?!/)(?!.*//)(?!.*\.\.)[A-Za-z0-9._:/@=-]{1,128}(?<!/)")


def edit_request(
    spans: Spans, read: Peek, operation: Operation, upstream_model: str, vendor: Vendor
) -> bytes:
    """Return the body for the upstream; the same object if nothing changes.

    Some clients repeat the path's model in the body. An upstream with another name for it would
    refuse that. ``peek`` has refused any other model.
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
    """Return the path with its query. Raises Fault CHANNEL_MISCONFIGURED if the model's name cannot
    stand in a path.

    Slashes and colons in the name stay unescaped, as the SDKs send them.
    """
    resource = _resource(upstream_model)
    if _PATH_NAME.fullmatch(resource.removeprefix(MODELS)) is None:
        raise Fault(Condition.CHANNEL_MISCONFIGURED, model=target)
    verb = operation.endpoint.rpartition(":")[2]
    events = operation.job == "stream" and operation.framing == "sse"
    return f"/v1beta/{resource}:{verb}" + ("?alt=sse" if events else "")


def _resource(upstream_model: str) -> str:
    """Return the model's name as in the vendor's paths: models/x or tunedModels/x."""
    if upstream_model.startswith((MODELS, _TUNED_MODELS)):
        return upstream_model
    return MODELS + upstream_model


def read_models(body: bytes) -> list[str]:
    """Return the models in a page that can generate. Raises UPSTREAM_INVALID if it is no page."""
    entries = [entry for entry in list_page(body, "models") if _generates(entry)]
    return [name.removeprefix("models/") for name in list_names(entries, "name")]


def _generates(entry: Mapping[str, Any]) -> bool:
    methods = entry.get("supportedGenerationMethods")
    return not isinstance(methods, list) or METHODS[0] in methods


MODEL_FIELD = "modelVersion"


class _Reply(Struct):
    """The fields of a whole answer that are read; the candidates stay undecoded."""

    candidates: list[Raw]
    usageMetadata: Any = None
    responseId: Any = None
    error: Any = None


_decode_reply = decoder(_Reply)


class _Candidate(Struct):
    index: Any = None
    groundingMetadata: Any = None


class _GroundedReply(Struct):
    candidates: list[_Candidate]


_decode_grounded = decoder(_GroundedReply)
# The same for an answer that is too large to be decoded.
LONG_MARKS = (
    LongMark(
        b'"webSearchQueries"',
        re.compile(
            rb'"webSearchQueries"[ \t\r\n]*:[ \t\r\n]*'
            rb'(\[(?:[^"\[\]]++|"(?:[^"\\]++|\\.)*+")*+\])',
            re.DOTALL,
        ),
        b'{"groundingMetadata":{"webSearchQueries":%b}}',
    ),
    LongMark(
        b'"maps"',
        re.compile(rb'"(maps)"[ \t\r\n]*:[ \t\r\n]*\{'),
        b'{"groundingMetadata":{"groundingChunks":[{"%b":{"uri":""}}]}}',
    ),
)


def _rename(body: bytes, public: str, upstream_model: str) -> bytes:
    place = locate(body, MODEL_FIELD)
    if place is None:
        return body
    name = renamed(body[place.start : place.end], public, upstream_model)
    return body if name is None else replace(body, {place: name})


def renamed(value: bytes, public: str, upstream_model: str) -> bytes | None:
    """Return the JSON value to replace ``modelVersion``; None if it names another model.

    Only the name that was sent to the upstream is replaced, because a more specific version is
    kept.
    """
    version = loads_or_none(value)
    if not isinstance(version, str):
        return None
    if version.removeprefix(MODELS) != upstream_model.removeprefix(MODELS):
        return None
    return dumps(MODELS + public if version.startswith(MODELS) else public)


def _fields(body: bytes) -> Reply | None:
    reply = _decode_reply(body)
    if reply.error is not None or not reply.candidates:
        return None
    uses = NO_USES
    if body.find(_GROUNDING) >= 0:  # not `in`, which raises and drops an exception
        grounding = Grounding()
        for candidate in _decode_grounded(body).candidates:
            grounding.note(candidate.index, candidate.groundingMetadata)
        uses = grounding.uses
    return _reply(reply.responseId, reply.usageMetadata, [*reply.candidates], uses)


def _odd_fields(answer: Any) -> Reply:
    if not isinstance(answer, dict) or answer.get("error") or not _is_answer(answer):
        raise embedded_fault(answer)
    candidates, grounding = answer.get("candidates"), Grounding()
    listed = candidates if isinstance(candidates, list) else []
    for candidate in dicts(listed):
        grounding.note(candidate.get("index"), candidate.get("groundingMetadata"))
    reply = _reply(answer.get("responseId"), answer.get("usageMetadata"), listed, grounding.uses)
    reply.plain = not has_content(answer.get("promptFeedback"))
    return reply


def _reply(answer_id: object, usage: Any, candidates: list[Any], uses: Mapping[str, int]) -> Reply:
    return Reply(answer_id, usage, candidates, read_usage(usage, uses), read_served(usage))


def candidate_has_content(candidate: dict[str, Any]) -> bool:
    """Return false for an empty candidate that ended normally."""
    finish = candidate.get("finishReason")
    return (bool(finish) and finish != "STOP") or has_content(candidate.get("content"))


def _is_answer(answer: dict[str, Any]) -> bool:
    candidates = answer.get("candidates")
    if isinstance(candidates, list) and candidates:
        return True
    return any(isinstance(answer.get(name), dict) for name in ("promptFeedback", "usageMetadata"))


def weight_of_candidate(candidate: dict[str, Any]) -> int:
    """Return the output weight of the readable parts of a candidate."""
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
            except OverflowError:  # an infinity, or nested too deeply to be written
                continue


class Grounding:
    """The uses of Google's tools in the candidates of an answer. Chunks of a stream may repeat
    earlier queries or add others."""

    __slots__ = ("_maps", "_queries")

    def __init__(self) -> None:
        self._queries: Counter[tuple[int, str]] = Counter()  # by candidate
        self._maps = False

    def note(self, index: object, metadata: object) -> None:
        """Note the ``groundingMetadata`` of a candidate."""
        if not isinstance(metadata, dict):
            return
        queries = metadata.get("webSearchQueries")
        if isinstance(queries, list) and len(self._queries) < MAX_USES:
            place = index if isinstance(index, int) else 0
            words = (query for query in queries[:MAX_USES] if isinstance(query, str) and query)
            self._queries |= Counter((place, word) for word in words)
        chunks = dicts(metadata.get("groundingChunks"))
        self._maps = self._maps or any(chunk.get("maps") for chunk in chunks)

    @property
    def uses(self) -> Mapping[str, int]:
        """The uses, by meter."""
        if not self._queries and not self._maps:
            return NO_USES
        return {"web_search": self._queries.total(), "maps": int(self._maps)}


def read_usage(usage: object, uses: Mapping[str, int] = NO_USES) -> Usage | None:
    """Return the counts of a usage object; None if prompt or output is unreadable.

    If output is not reported, it is the remainder of the total. Missing or implausible details
    count as 0, and a part is never larger than its whole.
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
    tokens = Tokens(
        min(prompt + tools, MAX_TOKENS),
        min(output + thoughts, MAX_TOKENS),
        cached=min(token_count(usage.get("cachedContentTokenCount")) or 0, prompt),
        reasoning=thoughts,
        input_kinds=_kinds(usage, ("promptTokensDetails", "toolUsePromptTokensDetails")),
        cached_kinds=_kinds(usage, ("cacheTokensDetails",)),
        output_kinds=_kinds(usage, ("candidatesTokensDetails",)),
    )
    return tokens.usage(uses)


def _kinds(usage: dict[str, Any], names: Iterable[str]) -> Kinds:
    """Return the tokens by kind in lists of details. Documents and unknown kinds count as text."""
    kinds = NO_KINDS
    for name in names:
        for entry in dicts(usage.get(name)) if name in usage else ():
            kind, tokens = entry.get("modality"), token_count(entry.get("tokenCount"))
            if kind != "TEXT" and isinstance(kind, str) and kind.lower() in KINDS and tokens:
                kinds = {**kinds, kind.lower(): kinds.get(kind.lower(), 0) + tokens}
    return kinds


def read_served(usage: object) -> Served:
    """Return the tier in a usage object of the Gemini API or Vertex."""
    if not isinstance(usage, dict):
        return NOT_REPORTED
    tier, traffic = usage.get("serviceTier"), usage.get("trafficType")
    if tier is None and isinstance(traffic, str) and traffic.startswith(_ON_DEMAND):
        tier = traffic.removeprefix(_ON_DEMAND).removeprefix("_") or "default"
    return served_of(tier)


# A whole answer (see ``family.UpstreamSide``). A blocked prompt is an answer without candidates.
read_answer = AnswerReader(
    _fields, _odd_fields, weight_of_candidate, candidate_has_content, _rename, "totalTokens"
).read

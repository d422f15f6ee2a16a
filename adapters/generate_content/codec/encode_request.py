"""A request for an upstream.

Source of the facts: the family's public documentation. Imported by this folder's ``__init__``.
"""

from typing import Any

from adapters.family.codec import Encoded, Target
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.generate_content.codec.encode_tools import encode_schema, encode_tools
from adapters.generate_content.codec.encode_turns import (
    ContentWriter,
    text_parts,
    wants_signatures,
)
from adapters.generate_content.codec.wire.names import Names
from adapters.generate_content.codec.wire.schema import Nodes
from adapters.ir.request import Effort, Feature, Request, Thinking
from adapters.json.jsonio import dumps
from adapters.json.structure import Steps

MAX_STOPS = 5
MAX_LOGPROBS = 20
_SEEDS = range(-(2**31), 2**31)

# Depth in the order of the words, and what stands for each in tokens for models that take those.
_BUDGETS: dict[Effort, int] = {
    "off": 0,
    "minimal": 512,
    "low": 1024,
    "medium": 8192,
    "high": 24_576,
    "xhigh": 32_768,
    "max": 2**31,
}
_DEPTHS: tuple[Effort, ...] = tuple(_BUDGETS)
_LEVELS: tuple[Effort, ...] = ("minimal", "low", "medium", "high", "xhigh")
_LEAST_BUDGET = 128  # of models that always think
# From how many tokens on a budget counts as this depth.
_DEPTH_OF_BUDGET: tuple[tuple[int, Effort], ...] = (
    (16_384, "high"),
    (8192, "medium"),
    (1024, "low"),
    (1, "minimal"),
    (0, "off"),
)

_Wire = dict[str, Any]


def encode_request(request: Request, target: Target, count: bool) -> Steps[Encoded]:
    """The body, in steps (see ``UpstreamCodec``). One to count tokens wraps the whole request,
    which names the model then."""
    names = Names(request.tools)
    writer = ContentWriter(names, signs=wants_signatures(target.model))
    for turn in request.turns:
        writer.add(turn)
        yield False
    system = text_parts(request.system)
    body: _Wire = {"contents": writer.finish(system)}
    if system:
        body["systemInstruction"] = {"parts": system}
    nodes = Nodes()
    tools, dropped = yield from encode_tools(request, names, target.traits, nodes)
    body |= tools
    config, dropped_of_config, cut = _config(request, target.traits, nodes)
    if config:
        body["generationConfig"] = config
    fast = any(ask.feature == "speed" for ask in request.asks)
    tier = "priority" if fast else _TIERS.get(request.tier)
    if tier:
        body["serviceTier"] = tier
    if count:
        model = target.model if "/" in target.model else f"models/{target.model}"
        body = {"generateContentRequest": {"model": model, **body}}
    yield True
    try:
        written = dumps(body)
    except OverflowError:
        message = "A number in the request is out of range, or it is nested too deeply."
        raise Fault(Condition.INVALID_FIELD, message) from None
    return Encoded(written, names.renamed, cut=cut, dropped=(*dropped, *dropped_of_config))


_TIERS = {"default": "standard", "flex": "flex", "priority": "priority"}


def _config(
    request: Request, traits: Traits, nodes: Nodes
) -> tuple[_Wire, tuple[Feature, ...], tuple[str, ...]]:
    """``generationConfig``, what was left out of it, and the stop sequences beyond the vendor's
    bound."""
    config, dropped = _sampling(request) if traits.sampling else ({}, ())
    if request.max_output_tokens:
        config["maxOutputTokens"] = request.max_output_tokens
    stops = tuple(dict.fromkeys(filter(None, request.stop)))
    if stops:
        config["stopSequences"] = list(stops[:MAX_STOPS])
    if request.n > 1:
        config["candidateCount"] = request.n
    if request.logprobs is not None:
        config["responseLogprobs"] = True
        if request.logprobs:
            config["logprobs"] = min(request.logprobs, MAX_LOGPROBS)
    output = request.output
    if output.kind != "text":
        config["responseMimeType"] = "application/json"
    if output.kind == "schema" and output.schema is not None:
        written, schema = encode_schema(output.schema, traits, "", nodes)
        config["responseJsonSchema" if written else "responseSchema"] = schema
    thinking = _thinking(request.thinking, traits)
    if thinking:
        config["thinkingConfig"] = thinking
    return config, dropped, stops[MAX_STOPS:]


def _sampling(request: Request) -> tuple[_Wire, tuple[Feature, ...]]:
    """The sampling fields, and those whose value the vendor would refuse."""
    config: _Wire = {}
    dropped: list[Feature] = []
    for name, value in (
        ("temperature", request.temperature),
        ("topP", request.top_p),
        ("presencePenalty", request.presence_penalty),
        ("frequencyPenalty", request.frequency_penalty),
    ):
        if value is not None:
            config[name] = value
    if request.top_k is not None:
        if request.top_k >= 1:
            config["topK"] = request.top_k
        else:
            dropped.append("top_k")
    if request.seed is not None:
        if request.seed in _SEEDS:
            config["seed"] = request.seed
        else:
            dropped.append("seed")
    return config, tuple(dropped)


def _thinking(thinking: Thinking | None, traits: Traits) -> _Wire:
    """``thinkingConfig``: by a level or by a budget, as the model takes it."""
    if thinking is None or traits.thinking == "none":
        return {}
    effort, budget = thinking.effort, thinking.budget_tokens
    config: _Wire = {}
    if traits.thinking == "budget":
        if effort == "auto":
            config["thinkingBudget"] = -1
        elif effort is not None or budget is not None:
            wanted = _BUDGETS[effort] if effort is not None else budget or 0
            least = 0 if "off" in traits.efforts else _LEAST_BUDGET
            config["thinkingBudget"] = max(min(wanted, traits.max_budget_tokens), least)
    else:
        if effort is None and budget is not None:
            effort = next(depth for least, depth in _DEPTH_OF_BUDGET if budget >= least)
        if effort not in (None, "auto"):
            config["thinkingLevel"] = _level(effort, traits).upper()
    off = effort == "off" or (effort is None and budget == 0)
    shown = thinking.show in ("summary", "full")
    if not off and (shown or (thinking.show is None and (effort or budget))):
        config["includeThoughts"] = True
    return config


def _level(effort: Effort | None, traits: Traits) -> Effort:
    """The level that the model has for a depth: the nearest that is not deeper, else its least."""
    levels = [level for level in _LEVELS if level in traits.efforts] or ["low"]
    depth = _DEPTHS.index(effort) if effort in _DEPTHS else len(_DEPTHS)
    fitting = [level for level in levels if _DEPTHS.index(level) <= depth]
    return fitting[-1] if fitting else levels[0]

"""A client's request of the chat completions family, read into the hub's words.

Every field is read, or named in ``asks``, so that nothing gets lost in silence on the way to
another family. Source: the request types of the official OpenAI SDKs. Imported by this folder's
``__init__``.
"""

from collections.abc import Callable
from typing import Any

from adapters.chat_completions.codec.decode_tools import decode_choice, decode_tools
from adapters.chat_completions.codec.decode_turns import decode_turns
from adapters.chat_completions.codec.fields import FIELDS
from adapters.chat_completions.codec.reading import (
    integer,
    needed,
    number,
    string,
    typed,
    word,
)
from adapters.family.codec import stop_sequences
from adapters.family.fields import MAX_COUNT
from adapters.faults import wrong_type
from adapters.ir.request import Ask, Effort, Feature, Output, Request, Thinking
from adapters.json.jsonio import Spans, loads
from adapters.json.structure import Steps

_MAX_N = 128
_MAX_TOP_LOGPROBS = 20
_LARGE_BYTES = 262_144  # of messages: others have their turn before those are decoded

_EFFORTS: dict[str, Effort] = {
    "none": "off",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_EFFORT_WORDS = tuple(_EFFORTS)
_TIERS = ("auto", "default", "flex", "priority")

# Fields that are read into the hub's words, and whose asks are made where they are read.
_READ = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "tools", "tool_choice", "functions"),
        *("function_call", "response_format", "reasoning_effort", "service_tier", "modalities"),
        *("max_completion_tokens", "max_tokens", "temperature", "top_p", "top_k", "seed", "n"),
        *("frequency_penalty", "presence_penalty", "logit_bias", "stop", "logprobs"),
        *("top_logprobs", "parallel_tool_calls", "verbosity", "user", "safety_identifier"),
        *("prompt_cache_key", "metadata", "store", "web_search_options"),
    }
)
# What every request has; many have nothing else.
_FRAME = frozenset({"model", "stream", "stream_options", "max_tokens", "max_completion_tokens"})


def decode_request(spans: Spans, stream: bool, target: str | None) -> Steps[Request]:
    """The whole request (see ``family.codec.ClientCodec``)."""
    fields = {
        name: loads(spans.raw(name) or b"null")
        for name in spans.places
        if name in _READ and name != "messages"
    }
    asks = [
        Ask(FIELDS.get(name) or "other", name)
        for name in spans.places
        if name not in _READ and spans.raw(name) not in (b"null", b"{}", b"[]", b"false")
    ]
    raw = spans.raw("messages") or b"null"
    yield len(raw) > _LARGE_BYTES
    messages = loads(raw)
    if not isinstance(messages, list):
        raise wrong_type("messages", "expected an array")
    system, turns = yield from decode_turns(messages, asks)
    settings = {} if fields.keys() <= _FRAME else _settings(fields, asks)
    include_usage = _include_usage(fields, asks)
    return Request(
        "chat_completions",
        stream,
        turns,
        system,
        max_output_tokens=_bound(fields),
        include_usage=include_usage,
        asks=tuple(asks),
        **settings,
    )


def _settings(fields: dict[str, Any], asks: list[Ask]) -> dict[str, Any]:
    """Tools, sampling and all else that many requests have nothing of."""
    tools = decode_tools(fields, asks)
    choice = decode_choice(fields, asks) if tools else None
    _ask_for(fields, asks)
    return {
        "tools": tools,
        "choice": choice,
        "parallel_tools": _parallel(fields, asks),
        "output": _output(fields, asks),
        "verbosity": word(fields, "verbosity", "", ("low", "medium", "high")),
        "thinking": _thinking(fields, asks),
        "temperature": number(fields, "temperature", 0, 2),
        "top_p": number(fields, "top_p", 0, 1),
        "top_k": integer(fields, "top_k", -1, MAX_COUNT),
        "seed": integer(fields, "seed", -(2**63), 2**63 - 1),
        "frequency_penalty": number(fields, "frequency_penalty", -2, 2),
        "presence_penalty": number(fields, "presence_penalty", -2, 2),
        "logit_bias": _logit_bias(fields),
        "stop": _stop(fields),
        "n": integer(fields, "n", 1, _MAX_N) or 1,
        "logprobs": _logprobs(fields, asks),
        "end_user": string(fields, "safety_identifier", "") or string(fields, "user", ""),
        "metadata": typed(fields, "metadata", "", dict) or None,
        "tier": _tier(fields, asks),
        "cache_key": string(fields, "prompt_cache_key", ""),
        "function_call": bool(fields.get("functions")),
    }


def _is_one(value: object) -> bool:
    return value == 1


# Fields that ask for the feature of their name, unless they say what holds without them.
_PLAIN: dict[str, tuple[Feature, Callable[[object], bool]]] = {
    "temperature": ("temperature", _is_one),
    "top_p": ("top_p", _is_one),
    "top_k": ("top_k", lambda value: value == -1),
    "seed": ("seed", lambda value: False),
    "frequency_penalty": ("frequency_penalty", lambda value: not value),
    "presence_penalty": ("presence_penalty", lambda value: not value),
    "logit_bias": ("logit_bias", lambda value: not value),
    "stop": ("stop", lambda value: not value),
    "n": ("n", _is_one),
    "verbosity": ("verbosity", lambda value: value == "medium"),
    "user": ("end_user", lambda value: not value),
    "safety_identifier": ("end_user", lambda value: not value),
    "metadata": ("metadata", lambda value: not value),
    "prompt_cache_key": ("cache_key", lambda value: not value),
    "store": ("other", lambda value: not value),
    "modalities": ("output_modalities", lambda value: value in ([], ["text"])),
}


def _ask_for(fields: dict[str, Any], asks: list[Ask]) -> None:
    for name, (feature, is_nothing) in _PLAIN.items():
        value = fields.get(name)
        if value is not None and not is_nothing(value):
            asks.append(Ask(feature, name))


def _parallel(fields: dict[str, Any], asks: list[Ask]) -> bool | None:
    parallel = typed(fields, "parallel_tool_calls", "", bool)
    if fields.get("functions"):  # whose answers have one call at most
        return False
    if parallel is False:
        asks.append(Ask("parallel_tools", "parallel_tool_calls"))
    return parallel


def _output(fields: dict[str, Any], asks: list[Ask]) -> Output:
    wanted = typed(fields, "response_format", "", dict)
    if wanted is None:
        return Output()
    at = "response_format"
    kind = word(wanted, "type", at, ("text", "json_object", "json_schema"))
    if kind == "json_object":
        asks.append(Ask("json_output", at))
        return Output("json")
    if kind != "json_schema":
        return Output()
    asks.append(Ask("schema_output", at))
    said, at = needed(wanted, "json_schema", at, dict), f"{at}.json_schema"
    return Output(
        "schema",
        needed(said, "schema", at, dict),
        string(said, "name", at),
        string(said, "description", at),
        typed(said, "strict", at, bool),
    )


def _thinking(fields: dict[str, Any], asks: list[Ask]) -> Thinking | None:
    effort = word(fields, "reasoning_effort", "", _EFFORT_WORDS)
    if not effort:
        return None
    asks.append(Ask("reasoning", "reasoning_effort"))
    level = _EFFORTS[effort]
    # Clients of this family show what the model thought when there is any.
    return Thinking(level, show="none" if level == "off" else "full")


def _bound(fields: dict[str, Any]) -> int | None:
    newer = integer(fields, "max_completion_tokens", 1, MAX_COUNT)
    older = integer(fields, "max_tokens", 1, MAX_COUNT)
    return older if newer is None else newer


def _stop(fields: dict[str, Any]) -> tuple[str, ...]:
    said = fields.get("stop")
    if said is None:
        return ()
    stops = [said] if isinstance(said, str) else said
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise wrong_type("stop", "expected a string or an array of strings")
    return stop_sequences(said, "stop")


def _logprobs(fields: dict[str, Any], asks: list[Ask]) -> int | None:
    top = integer(fields, "top_logprobs", 0, _MAX_TOP_LOGPROBS)
    if not typed(fields, "logprobs", "", bool):
        return None
    asks.append(Ask("logprobs", "logprobs"))
    return top or 0


def _logit_bias(fields: dict[str, Any]) -> dict[str, float] | None:
    bias = typed(fields, "logit_bias", "", dict)
    for token, value in (bias or {}).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_type(f"logit_bias.{token}", "expected a number")
    return bias or None


def _tier(fields: dict[str, Any], asks: list[Ask]) -> Any:
    tier = string(fields, "service_tier", "")
    if tier == "fast":
        asks.append(Ask("speed", "service_tier"))
        return "priority"
    if tier in _TIERS:
        if tier not in ("auto", "default"):
            asks.append(Ask("tier", "service_tier"))
        return tier
    if tier:
        asks.append(Ask("other", "service_tier"))
    return ""


def _include_usage(fields: dict[str, Any], asks: list[Ask]) -> bool:
    options = typed(fields, "stream_options", "", dict) or {}
    for name, value in options.items():
        if name != "include_usage" and value:
            asks.append(Ask("other", f"stream_options.{name}"))
    return bool(typed(options, "include_usage", "stream_options", bool))

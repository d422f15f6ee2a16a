"""Decoding of a client's chat completions request: fields of the body, and tools.

Every field is read or listed in ``asks``, so that nothing is lost silently. Source: the request
types of the official OpenAI SDK 3.57, and further fields that servers of the family accept.
"""

from collections.abc import Mapping
from typing import Any

from adapters.chat_completions.decode_turns import decode_turns
from adapters.family.codec import Asking, stop_sequences
from adapters.family.reading import (
    MAX_COUNT,
    field_path,
    integer,
    nonempty,
    number,
    objects,
    one_of,
    optional,
    required,
    string,
)
from adapters.faults import wrong_type, wrong_value
from adapters.ir.request import Ask, Effort, Feature, Output, Request, Thinking, Tool, ToolChoice
from adapters.json.jsonio import Spans, loads
from adapters.json.structure import Steps

_OF_OWN_NAME: tuple[Feature, ...] = (  # fields named like the feature that they ask for
    *("frequency_penalty", "logit_bias", "logprobs", "metadata", "moderation", "n", "prediction"),
    *("presence_penalty", "seed", "stop", "temperature", "top_k", "top_p", "verbosity"),
)
FIELDS: Mapping[str, Asking] = {
    **dict.fromkeys(("model", "messages", "stream", "max_tokens", "max_completion_tokens"), ""),
    **dict.fromkeys(("tools", "tool_choice", "functions", "function_call", "stream_options"), ""),
    **{feature: feature for feature in _OF_OWN_NAME},
    **dict.fromkeys(("audio", "modalities"), "output_modalities"),
    **dict.fromkeys(
        ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"), "cache_key"
    ),
    **dict.fromkeys(("safety_identifier", "user"), "end_user"),
    "parallel_tool_calls": "parallel_tools",
    "reasoning_effort": "reasoning",
    "response_format": "schema_output",
    "service_tier": "tier",
    "store": "other",
    "top_logprobs": "logprobs",
    "web_search_options": "hosted_search",
}

_MAX_N = 128
_MAX_TOP_LOGPROBS = 20
_LARGE_BYTES = 262_144  # size of the messages above which they are decoded after a yield

_EFFORTS: dict[str, Effort] = {
    "none": "off",
    **{effort: effort for effort in ("minimal", "low", "medium", "high", "xhigh", "max")},
}
_EFFORT_WORDS = tuple(_EFFORTS)
_TIERS = ("auto", "default", "flex", "priority")

# Fields that are decoded, each with its own asks.
_READ_FIELDS = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "tools", "tool_choice", "functions"),
        *("function_call", "response_format", "reasoning_effort", "service_tier", "modalities"),
        *("max_completion_tokens", "max_tokens", "temperature", "top_p", "top_k", "seed", "n"),
        *("frequency_penalty", "presence_penalty", "logit_bias", "stop", "logprobs"),
        *("top_logprobs", "parallel_tool_calls", "verbosity", "user", "safety_identifier"),
        *("prompt_cache_key", "metadata", "store", "web_search_options"),
    }
)
# The fields that nearly every request has; many have no others.
_FRAME = frozenset({"model", "stream", "stream_options", "max_tokens", "max_completion_tokens"})


def decode_request(spans: Spans, stream: bool, target: str | None) -> Steps[Request]:
    """Decode the whole request, in steps (see ``family.codec.ClientCodec``)."""
    fields = {
        name: loads(spans.raw(name) or b"null")
        for name in spans.places
        if name in _READ_FIELDS and name != "messages"
    }
    asks = [
        Ask(FIELDS.get(name) or "other", name)
        for name in spans.places
        if name not in _READ_FIELDS and spans.raw(name) not in (b"null", b"{}", b"[]", b"false")
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
    """Decode tools, sampling and all other fields that many requests lack."""
    tools = decode_tools(fields, asks)
    choice = decode_choice(fields, asks) if tools else None
    _ask_for(fields, asks)
    return {
        "tools": tools,
        "choice": choice,
        "parallel_tools": _parallel(fields, asks),
        "output": _output(fields, asks),
        "verbosity": one_of(fields, "verbosity", "", ("low", "medium", "high")),
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
        "metadata": optional(fields, "metadata", "", dict) or None,
        "tier": _tier(fields, asks),
        "cache_key": string(fields, "prompt_cache_key", ""),
        "function_call": bool(fields.get("functions")),
    }


_EMPTY: tuple[object, ...] = (0, "", [], {})  # also covers false, which equals 0
# Fields that ask for their feature unless they have one of these values.
_DEFAULTS: dict[str, tuple[object, ...]] = {
    "temperature": (1,),
    "top_p": (1,),
    "top_k": (-1,),
    "seed": (),
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "logit_bias", "stop"), _EMPTY),
    "n": (1,),
    "verbosity": ("medium",),
    **dict.fromkeys(("user", "safety_identifier", "metadata"), _EMPTY),
    **dict.fromkeys(("prompt_cache_key", "store"), _EMPTY),
    "modalities": ([], ["text"]),
}


def _ask_for(fields: dict[str, Any], asks: list[Ask]) -> None:
    for name, defaults in _DEFAULTS.items():
        value = fields.get(name)
        if value is not None and value not in defaults:
            asks.append(Ask(FIELDS[name] or "other", name))


def _parallel(fields: dict[str, Any], asks: list[Ask]) -> bool | None:
    parallel = optional(fields, "parallel_tool_calls", "", bool)
    if fields.get("functions"):  # the old form has at most one call in an answer
        return False
    if parallel is False:
        asks.append(Ask("parallel_tools", "parallel_tool_calls"))
    return parallel


def _output(fields: dict[str, Any], asks: list[Ask]) -> Output:
    form = optional(fields, "response_format", "", dict)
    if form is None:
        return Output()
    at = "response_format"
    kind = one_of(form, "type", at, ("text", "json_object", "json_schema"))
    if kind == "json_object":
        asks.append(Ask("json_output", at))
        return Output("json")
    if kind != "json_schema":
        return Output()
    asks.append(Ask("schema_output", at))
    described, at = required(form, "json_schema", at, dict), f"{at}.json_schema"
    return Output(
        "schema",
        required(described, "schema", at, dict),
        string(described, "name", at),
        string(described, "description", at),
        optional(described, "strict", at, bool),
    )


def _thinking(fields: dict[str, Any], asks: list[Ask]) -> Thinking | None:
    effort = one_of(fields, "reasoning_effort", "", _EFFORT_WORDS)
    if not effort:
        return None
    asks.append(Ask("reasoning", "reasoning_effort"))
    level = _EFFORTS[effort]
    # Clients of this family show reasoning if there is any.
    return Thinking(level, show="none" if level == "off" else "full")


def _bound(fields: dict[str, Any]) -> int | None:
    newer = integer(fields, "max_completion_tokens", 1, MAX_COUNT)
    older = integer(fields, "max_tokens", 1, MAX_COUNT)
    return older if newer is None else newer


def _stop(fields: dict[str, Any]) -> tuple[str, ...]:
    value = fields.get("stop")
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise wrong_type("stop", "expected a string or an array of strings")
    return stop_sequences(value, "stop")


def _logprobs(fields: dict[str, Any], asks: list[Ask]) -> int | None:
    top = integer(fields, "top_logprobs", 0, _MAX_TOP_LOGPROBS)
    if not optional(fields, "logprobs", "", bool):
        return None
    asks.append(Ask("logprobs", "logprobs"))
    return top or 0


def _logit_bias(fields: dict[str, Any]) -> dict[str, float] | None:
    bias = optional(fields, "logit_bias", "", dict)
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
    options = optional(fields, "stream_options", "", dict) or {}
    for name, value in options.items():
        if name != "include_usage" and value:
            asks.append(Ask("other", f"stream_options.{name}"))
    return bool(optional(options, "include_usage", "stream_options", bool))


_CHOICE_WORDS = ("none", "auto", "required")


def decode_tools(fields: dict[str, Any], asks: list[Ask]) -> tuple[Tool, ...]:
    """Decode the tools of a request in order; a web search by the vendor comes last."""
    tools = [_tool(entry, at, asks) for entry, at in objects(fields, "tools", "")]
    tools += [_function(entry, at, at, asks) for entry, at in objects(fields, "functions", "")]
    if optional(fields, "web_search_options", "", dict) is not None:
        raw = {"type": "web_search", **fields["web_search_options"]}
        asks.append(Ask("hosted_search", "web_search_options"))
        tools.append(Tool("hosted", "web_search", search=True, raw=raw, path="web_search_options"))
    return tuple(tools)


def decode_choice(fields: dict[str, Any], asks: list[Ask]) -> ToolChoice | None:
    """Decode which tools must be called; None if the request does not say."""
    value = fields.get("tool_choice")
    if value is None:
        return _older_choice(fields.get("function_call"))
    if isinstance(value, str):
        return _by_word(value, "tool_choice")
    if not isinstance(value, dict):
        raise wrong_type("tool_choice", "expected a string or an object")
    kind = one_of(value, "type", "tool_choice", ("function", "custom", "allowed_tools"))
    kind = kind or "function"
    inner, at = required(value, kind, "tool_choice", dict), f"tool_choice.{kind}"
    if kind != "allowed_tools":
        return ToolChoice("one", (nonempty(inner, "name", at),))
    asks.append(Ask("allowed_tools", "tool_choice"))
    mode = one_of(inner, "mode", at, ("auto", "required"))
    names = tuple(_allowed_name(entry, path) for entry, path in objects(inner, "tools", at))
    if not names:
        raise wrong_value(field_path(at, "tools"), "expected at least one tool")
    return ToolChoice("any" if mode == "required" else "auto", names)


def _tool(entry: dict[str, Any], at: str, asks: list[Ask]) -> Tool:
    kind = one_of(entry, "type", at, ("function", "custom")) or "function"
    inner, path = required(entry, kind, at, dict), field_path(at, kind)
    if kind == "function":
        return _function(inner, path, at, asks)
    asks.append(Ask("custom_tool", at))
    name, description = nonempty(inner, "name", path), string(inner, "description", path)
    form = optional(inner, "format", path, dict) or {}
    grammar: dict[str, Any] = {}
    if form.get("type") == "grammar":
        grammar = required(form, "grammar", field_path(path, "format"), dict)
        path = field_path(path, "format.grammar")
    return Tool(
        "custom",
        name,
        description,
        grammar=string(grammar, "definition", path),
        grammar_syntax="regex" if grammar.get("syntax") == "regex" else "lark" if grammar else "",
        path=at,
    )


def _function(function: dict[str, Any], path: str, at: str, asks: list[Ask]) -> Tool:
    strict = optional(function, "strict", path, bool)
    if strict:
        asks.append(Ask("strict_tool", field_path(path, "strict")))
    return Tool(
        "function",
        nonempty(function, "name", path),
        string(function, "description", path),
        optional(function, "parameters", path, dict),
        strict,
        path=at,
    )


def _by_word(value: str, at: str) -> ToolChoice:
    if value not in _CHOICE_WORDS:
        raise wrong_value(at, "expected one of " + ", ".join(_CHOICE_WORDS))
    if value == "required":
        return ToolChoice("any")
    return ToolChoice("none") if value == "none" else ToolChoice("auto")


def _older_choice(value: object) -> ToolChoice | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _by_word(value, "function_call")
    if not isinstance(value, dict):
        raise wrong_type("function_call", "expected a string or an object")
    return ToolChoice("one", (nonempty(value, "name", "function_call"),))


def _allowed_name(entry: dict[str, Any], at: str) -> str:
    kind = string(entry, "type", at)
    inner = optional(entry, kind, at, dict) if kind in ("function", "custom") else None
    if inner is None:
        return nonempty(entry, "name", at)
    return nonempty(inner, "name", field_path(at, kind))

"""Requests for upstreams of the messages family, out of the hub's words.

Here: the fields around the conversation, in version 2023-06-01 of the interface. Imported by the
codec's ``__init__``. Source: the request types of the official SDKs, and the vendor's documentation
of what models take together.
"""

from typing import Any

from adapters.family.codec import Encoded, Target
from adapters.faults import Condition, Fault
from adapters.ir.parts import Text
from adapters.ir.request import Feature, Request
from adapters.json.jsonio import dumps
from adapters.json.structure import Steps
from adapters.messages.codec.upstream.cache_marks import limit_marks, mark_by_rule
from adapters.messages.codec.upstream.encode_tools import (
    encode_choice,
    encode_tools,
    output_tool,
)
from adapters.messages.codec.upstream.encode_turns import text_block, turn_steps
from adapters.messages.codec.upstream.schema import fits_answer, for_answer, for_tool
from adapters.messages.codec.upstream.thinking import encode_thinking, is_off

DEFAULT_MAX_TOKENS = 8192
MAX_USER_CHARS = 256
_JSON_ONLY = "Answer with one JSON object and nothing else, without a code fence around it."


def encode_request(request: Request, target: Target, counting: bool) -> Steps[Encoded]:
    """The body (see ``family.codec.UpstreamCodec``)."""
    traits = target.traits
    messages = yield from turn_steps(
        request.turns,
        documents=traits.documents,
        system_turns=traits.system_turns,
        # what was begun cannot become JSON after a schema
        prefill=traits.prefill and request.output.kind != "schema",
    )
    system = _system(request)
    if not messages:  # the vendor wants a turn of the user
        messages, system = [{"role": "user", "content": system}] if system else [], []
    tools, names = encode_tools(request, target)
    respond = _output_tool(request, target)
    if respond is not None:
        tools.append(respond)
    output_name = respond["name"] if respond is not None else ""
    choice = encode_choice(request, tools, output_name)
    bound = request.max_output_tokens or target.max_output_tokens or DEFAULT_MAX_TOKENS
    forced = choice is not None and choice["type"] in ("any", "tool")
    begun = bool(messages) and messages[-1]["role"] == "assistant"
    thinking, bound = encode_thinking(request, target, messages, bound, bare=forced or begun)
    body: dict[str, Any] = {"model": target.model}
    if not counting:
        body["max_tokens"] = bound
    if system:
        body["system"] = system
    body["messages"] = messages
    if tools:
        body["tools"] = tools
    if choice is not None:
        body["tool_choice"] = choice
    body |= _output(request, thinking, as_tool=respond is not None)
    cut: tuple[str, ...] = ()
    dropped: list[Feature] = []
    if request.thinking is not None and not (is_off(request.thinking) or thinking):
        dropped.append("reasoning")
    if not counting:
        cut = _add_options(body, request, target, dropped)
    _mark(body, target)
    yield True
    return Encoded(dumps(body), names, output_name, cut, tuple(dropped))


def _system(request: Request) -> list[dict[str, Any]]:
    blocks = [text_block(part) for part in request.system if isinstance(part, Text)]
    if request.output.kind == "json":
        blocks.append({"type": "text", "text": _JSON_ONLY})
    return [block for block in blocks if block is not None]


def _output_tool(request: Request, target: Target) -> dict[str, Any] | None:
    """The tool whose arguments are the answer, for models without a field for its schema, and for
    schemas that do not fit into it."""
    if request.output.kind != "schema" or target.traits.structured == "none":
        return None
    schema = request.output.schema or {}
    is_object = schema.get("type", "object") == "object"  # as arguments are
    if target.traits.structured == "schema" and (fits_answer(schema) or not is_object):
        return None
    if not is_object:
        path = next((ask.path for ask in request.asks if ask.feature == "schema_output"), None)
        raise Fault(Condition.UNSUPPORTED, param=path)
    return output_tool(for_tool(schema), request)


def _output(request: Request, thinking: dict[str, Any], *, as_tool: bool) -> dict[str, Any]:
    """How much is thought, and the schema of the answer."""
    config: dict[str, Any] = {}
    if "effort" in thinking:
        config["effort"] = thinking["effort"]
    schema = request.output.schema
    if request.output.kind == "schema" and schema and not as_tool:
        config["format"] = {"type": "json_schema", "schema": for_answer(schema)}
    fields = {"thinking": thinking["thinking"]} if "thinking" in thinking else {}
    return fields | ({"output_config": config} if config else {})


def _add_options(
    body: dict[str, Any], request: Request, target: Target, dropped: list[Feature]
) -> tuple[str, ...]:
    """Sampling and what stands around the call; returns the stop sequences that the vendor does not
    take, which are those of nothing but blanks."""
    if request.stream:
        body["stream"] = True
    stop = [each for each in request.stop if each.strip()]
    if stop:
        body["stop_sequences"] = stop
    _add_sampling(body, request, target, dropped)
    if request.end_user:
        body["metadata"] = {"user_id": request.end_user[:MAX_USER_CHARS]}
    if request.tier:
        body["service_tier"] = "standard_only" if request.tier == "default" else "auto"
    return tuple(each for each in request.stop if each and not each.strip())


def _add_sampling(
    body: dict[str, Any], request: Request, target: Target, dropped: list[Feature]
) -> None:
    """One of temperature and top_p, for models take no two of them, and none beside thinking."""
    given: dict[Feature, float] = {}
    if request.temperature is not None:
        given["temperature"] = min(request.temperature, 1)
    if request.top_p is not None:
        given["top_p"] = request.top_p
    if request.top_k is not None:
        given["top_k"] = request.top_k
    if not (given and target.traits.sampling):
        return
    if body.get("thinking", {}).get("type") in ("enabled", "adaptive"):
        dropped += given
    else:
        if "temperature" in given and given.pop("top_p", None) is not None:
            dropped.append("top_p")
        body.update({str(name): value for name, value in given.items()})


def _mark(body: dict[str, Any], target: Target) -> None:
    limit_marks(body)
    if target.traits.auto_cache:
        mark_by_rule(body)

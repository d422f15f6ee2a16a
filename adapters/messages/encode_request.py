"""Requests for upstreams of the messages family, encoded from ``adapters.ir``.

Here: fields, tools, thinking and schemas, in version 2023-06-01 of the API; turns are in
``encode_turns``. The family accepts letters, digits, ``_`` and ``-`` in names, no free-text tools
and no tool groups; such tools get another name or shape, listed in ``Encoded.names``. A tool's
arguments are an object without alternatives at the root. A schema for the answer closes every
object and has no bounds for numbers and texts; the bounds go into the description, where the model
still reads them. Newer models think by effort and refuse budgets, older ones the reverse, as the
table of models says. Source: the request types of the official SDKs, and the vendor's documentation
of tools, structured outputs and thinking. Imported by this folder's ``__init__``.
"""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from adapters.family.codec import Encoded, Target
from adapters.family.reply import dicts
from adapters.family.traits import nearest_effort, requested_effort
from adapters.faults import Condition, Fault
from adapters.ir.parts import Text, ToolCall
from adapters.ir.request import Effort, Feature, Request, Thinking, Tool
from adapters.json.jsonio import compact, dumps
from adapters.json.structure import Steps
from adapters.messages.encode_turns import CACHE_FIELD, sent_name, text_block, turn_steps, with_mark

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
# Keywords that the vendor refuses in the schema of an answer.
_BOUNDS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
)
# Keywords whose value is a schema, a list of schemas, or schemas by name.
_ONE = ("items", "not", "additionalProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "$defs", "definitions")
_DEPTH_MAX = 64  # deeper schemas stay unchanged


def for_tool(schema: dict[str, Any] | None) -> dict[str, Any]:
    """Return the schema of a tool's arguments."""
    if not schema:
        return NO_ARGUMENTS
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if any(name in schema for name in _ALTERNATIVES):
        return _merged(schema)
    if kind == "object":
        return schema
    if "object" in kinds or kind is None:
        return {"type": "object"} | {
            name: value for name, value in schema.items() if name != "type"
        }
    return _wrapped(schema)


def fits_answer(schema: dict[str, Any]) -> bool:
    """Return true if the vendor can constrain an answer to this schema. It cannot for objects with
    arbitrary names, and for recursive schemas."""
    return not any(_is_open(each) for each in _schemas(schema)) and not _is_endless(schema)


def for_answer(schema: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return the schema in the form for structured output."""
    if depth >= _DEPTH_MAX:
        return schema
    fit: dict[str, Any] = {}
    bounds = []
    for name, value in schema.items():
        if name in _BOUNDS or (name == "minItems" and value not in (0, 1)):
            bounds.append(f"{name}: {compact(value)}")
        else:
            fit[name] = _inner_schema(name, value, depth)
    if "oneOf" in fit:
        fit["anyOf"] = fit.pop("oneOf")
    if schema.get("type") == "object" or "properties" in schema:
        fit["additionalProperties"] = False
    if bounds:
        words = [fit.get("description"), "; ".join(bounds)]
        fit["description"] = " ".join(f"{word}" for word in words if word)
    return fit


def _inner_schema(name: str, value: Any, depth: int) -> Any:
    if name in _ONE and isinstance(value, dict):
        return for_answer(value, depth + 1)
    if name in _LISTS and isinstance(value, list):
        return [for_answer(each, depth + 1) if isinstance(each, dict) else each for each in value]
    if name in _NAMED and isinstance(value, dict):
        return {
            key: for_answer(each, depth + 1) if isinstance(each, dict) else each
            for key, each in value.items()
        }
    return value


def _schemas(schema: dict[str, Any], depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas inside it."""
    yield schema
    if depth >= _DEPTH_MAX:
        return
    for name, value in schema.items():
        inner: list[Any] = []
        if name in _ONE:
            inner = [value]
        elif name in _LISTS and isinstance(value, list):
            inner = value
        elif name in _NAMED and isinstance(value, dict):
            inner = list(value.values())
        for each in inner:
            if isinstance(each, dict):
                yield from _schemas(each, depth + 1)


def _is_open(schema: dict[str, Any]) -> bool:
    if isinstance(schema.get("additionalProperties"), dict) or "patternProperties" in schema:
        return True
    return schema.get("type") == "object" and not schema.get("properties")


def _is_endless(schema: dict[str, Any]) -> bool:
    """Return true if a definition leads to itself, or a reference to the whole schema."""
    leads: dict[str, set[str]] = {}
    for group in ("$defs", "definitions"):
        for name, each in _schemas_by_name(schema, group).items():
            leads[f"#/{group}/{name}"] = _refs(each) if isinstance(each, dict) else set()
    if "#" in _refs(schema):
        return True
    try:
        TopologicalSorter(leads).prepare()
    except CycleError:
        return True
    return False


def _refs(schema: dict[str, Any]) -> set[str]:
    refs = (each.get("$ref") for each in _schemas(schema))
    return {ref for ref in refs if isinstance(ref, str)}


def _merged(schema: dict[str, Any]) -> dict[str, Any]:
    """Return one object in place of alternatives at the root. It has all properties of all of them,
    and requires those that each alternative requires."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name in _ALTERNATIVES:
        branches = dicts(schema.get(name))
        for branch in branches:
            properties |= _schemas_by_name(branch)
        required_names = [_required(branch) for branch in branches]
        if name == "allOf":
            required += [each for names in required_names for each in names]
        elif required_names:
            common = set(required_names[0]).intersection(*required_names)
            required += [each for each in required_names[0] if each in common]
    rest = {name: value for name, value in schema.items() if name not in _ALTERNATIVES}
    merged = rest | {"type": "object", "properties": properties | _schemas_by_name(schema)}
    required = list(dict.fromkeys(_required(schema) + required))
    return merged | ({"required": required} if required else {})


def _schemas_by_name(schema: dict[str, Any], name: str = "properties") -> dict[str, Any]:
    schemas = schema.get(name)
    return schemas if isinstance(schemas, dict) else {}


def _required(schema: dict[str, Any]) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an object with one property, for a schema that describes no object."""
    return {"type": "object", "properties": {"value": schema}, "required": ["value"]}


_OUTPUT_TOOL = "respond"
# Every model with search has it; newer versions run code, which not every account may use.
_SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def encode_tools(request: Request, target: Target) -> tuple[list[dict[str, Any]], dict[str, Tool]]:
    """Return the tools in order, and the client's tools by names that differ."""
    allowed = _allowed(request)
    tools: list[dict[str, Any]] = []
    names: dict[str, Tool] = {}
    sent_names: set[str] = set()
    for tool in request.tools:
        name = sent_name(tool.name, tool.namespace)
        if tool.kind == "hosted":
            if tool.search and target.traits.search and "web_search" not in sent_names:
                sent_names.add("web_search")
                tools.append(with_mark(_SEARCH.copy(), tool.cache))
            continue
        if name in sent_names or (allowed and tool.name not in allowed):
            continue
        sent_names.add(name)
        if name != tool.name or tool.kind == "custom":
            names[name] = tool
        tools.append(with_mark(_tool(tool, name, target), tool.cache))
    return tools or _called_before(request), names


def encode_choice(
    request: Request, tools: list[dict[str, Any]], output_tool: str
) -> dict[str, Any] | None:
    """Return the choice among ``tools``; None for the vendor's default, which is auto."""
    if not tools:
        return None
    choice = request.choice
    mode = choice.mode if choice is not None else "auto"
    written: dict[str, Any] = {"type": mode}
    if output_tool:
        own_tools = [tool for tool in tools if tool["name"] != output_tool]
        written = {"type": "any"}
        if mode == "none" or not own_tools:
            written = {"type": "tool", "name": output_tool}
    elif not any(tool.kind != "hosted" or tool.search for tool in request.tools):
        written = {"type": "none"}  # the client offered none of these tools
    elif mode == "one" and choice is not None:
        written = {"type": "tool", "name": _chosen_name(request, choice.names[0])}
    if request.parallel_tools is False and written["type"] != "none":
        written["disable_parallel_tool_use"] = True
    return written if written != {"type": "auto"} else None


def text_of_choice(choice: dict[str, Any]) -> dict[str, Any]:
    """Return the instruction that replaces a forced tool if the model refuses one."""
    tool = f"the tool {choice['name']}" if "name" in choice else "one of the tools"
    return {"type": "text", "text": f"Answer by a call of {tool}."}


def output_tool(schema: dict[str, Any], request: Request) -> dict[str, Any]:
    """Return the tool that stands for structured output, for models without a field for it."""
    used_names = {sent_name(tool.name, tool.namespace) for tool in request.tools}
    name = _OUTPUT_TOOL
    while name in used_names:
        name += "_"
    description = request.output.description or "Gives the final answer to the user."
    return {"name": name, "description": description, "input_schema": schema}


def _tool(tool: Tool, name: str, target: Target) -> dict[str, Any]:
    written: dict[str, Any] = {"name": name}
    description = tool.description
    if tool.grammar:
        follows = f"The input must follow this {tool.grammar_syntax} grammar:\n{tool.grammar}"
        description = f"{description}\n\n{follows}".lstrip()
    if description:
        written["description"] = description
    if tool.kind == "custom":
        text = {"type": "string", "description": "The input of the tool, as plain text."}
        properties = {"input": text}
        required = {"type": "object", "properties": properties, "required": ["input"]}
        return written | {"input_schema": required}
    schema = for_tool(tool.schema)
    if tool.strict and target.traits.strict_tools and fits_answer(schema):
        return written | {"input_schema": for_answer(schema), "strict": True}
    return written | {"input_schema": schema}


def _allowed(request: Request) -> frozenset[str]:
    """Return the names of the tools that may be called; empty for all."""
    choice = request.choice
    subset = choice is not None and choice.mode in ("auto", "any")
    return frozenset(choice.names if choice is not None and subset else ())


def _chosen_name(request: Request, name: str) -> str:
    chosen = [tool for tool in request.tools if name in (tool.name, _flat(tool))]
    return sent_name(chosen[0].name, chosen[0].namespace) if chosen else sent_name(name)


def _flat(tool: Tool) -> str:
    return f"{tool.namespace}__{tool.name}"


def _called_before(request: Request) -> list[dict[str, Any]]:
    """Return the tools in the history of a request without tools: the vendor requires them
    declared."""
    calls = [part for turn in request.turns for part in turn.parts if isinstance(part, ToolCall)]
    names = dict.fromkeys(sent_name(call.name, call.namespace) for call in calls)
    return [{"name": name, "input_schema": NO_ARGUMENTS} for name in names]


MIN_BUDGET_TOKENS = 1024
ANSWER_TOKENS = 1024  # reserved for the answer if the bound allows
_BUDGETS: dict[Effort, int] = {  # for max, all that the bound leaves
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
}
_EFFORTS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")  # of the family


def encode_thinking(
    request: Request, target: Target, messages: list[dict[str, Any]], bound: int, *, bare: bool
) -> tuple[dict[str, Any], int]:
    """Return the fields ``thinking`` and ``effort``, if any, and the bound of the answer to
    ``messages``.

    ``bound``: the limit of the client or of the model's row. ``bare``: the answer must start at
    once, with a tool or in the middle of a text, which excludes thinking by a budget.
    """
    requested = request.thinking
    traits = target.traits
    if requested is None or traits.thinking == "none":
        return {}, bound
    if is_off(requested):  # the default of most models
        off = traits.thinking == "adaptive" and "off" in traits.efforts
        return ({"thinking": {"type": "disabled"}} if off else {}), bound
    if traits.thinking == "budget":
        if bare or _has_lost_thoughts(messages):
            return {}, bound
        return _by_budget(request, target, bound)
    fields: dict[str, Any] = {}
    level = requested_effort(requested)
    if level is not None:
        levels = [effort for effort in _EFFORTS if effort in traits.efforts]
        fields["effort"] = nearest_effort(level, levels) or "low"
    if traits.thinking == "adaptive" and (level is not None or requested.effort == "auto"):
        thinking = {"type": "adaptive"}
        if requested.show is not None:
            thinking["display"] = "omitted" if requested.show == "none" else "summarized"
        fields["thinking"] = thinking
    return fields, bound


def is_off(thinking: Thinking) -> bool:
    """Return true if the client turns thinking off."""
    return thinking.effort == "off" or thinking.budget_tokens == 0


def _has_lost_thoughts(messages: list[dict[str, Any]]) -> bool:
    """Return true if the calls that are now answered came back without the thoughts before them.
    The vendor would then refuse to think by a budget."""
    if len(messages) < 2 or messages[-1]["content"][0]["type"] != "tool_result":
        return False
    return messages[-2]["content"][0]["type"] not in ("thinking", "redacted_thinking")


def _by_budget(request: Request, target: Target, bound: int) -> tuple[dict[str, Any], int]:
    """Return thinking by a budget, and the bound. A budget must be less than the bound. The bound
    is raised as far as the model allows, then the budget is lowered; if no budget is left, there is
    no thinking."""
    requested, limit = request.thinking, target.max_output_tokens
    assert requested is not None
    budget = requested.budget_tokens
    if budget is None:
        if requested.effort is None or requested.effort == "auto":
            return {}, bound
        budget = _BUDGETS.get(requested.effort, bound - ANSWER_TOKENS)
    budget = max(min(budget, target.traits.max_budget_tokens), MIN_BUDGET_TOKENS)
    if bound <= budget:
        if limit is None:  # never raise the client's own bound by a guess
            limit = bound if request.max_output_tokens is not None else budget + bound
        bound = max(bound, min(budget + bound, limit))
        budget = min(budget, max(bound - ANSWER_TOKENS, MIN_BUDGET_TOKENS))
    if bound <= budget:
        return {}, bound
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}, bound


MAX_MARKS = 4


def limit_marks(body: dict[str, Any]) -> None:
    """Remove marks beyond MAX_MARKS. The last ones stay, and the last one of the system text."""
    marked = _marked(body)
    if len(marked) <= MAX_MARKS:
        return
    system = [block for block in body.get("system", ()) if CACHE_FIELD in block][-1:]
    rest = [block for block in marked if not any(block is each for each in system)]
    for block in rest[: len(rest) - (MAX_MARKS - len(system))]:
        del block[CACHE_FIELD]


def mark_by_rule(body: dict[str, Any]) -> None:
    """Mark the start of the next call's prompt, unless something is marked already or the request
    is a single question, which would only pay for the cache write."""
    messages = body["messages"]
    talk = any(message["role"] == "assistant" for message in messages)
    if not (talk or body.get("tools")) or _marked(body):
        return
    users = [message for message in messages if message["role"] == "user"]
    for blocks in (body.get("tools"), body.get("system"), users[-1]["content"] if users else ()):
        if blocks:
            blocks[-1][CACHE_FIELD] = {"type": "ephemeral"}


def _marked(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all marked blocks in the order in which the vendor reads them."""
    blocks = [*body.get("tools", ()), *body.get("system", ())]
    for message in body["messages"]:
        blocks += message["content"]
    return [block for block in blocks if CACHE_FIELD in block]


DEFAULT_MAX_TOKENS = 8192
MAX_USER_CHARS = 256
_JSON_ONLY = "Answer with one JSON object and nothing else, without a code fence around it."


def encode_request(request: Request, target: Target, counting: bool) -> Steps[Encoded]:
    """Return the body (see ``family.codec.UpstreamCodec``)."""
    traits = target.traits
    messages = yield from turn_steps(
        request.turns,
        traits,
        # A partial text cannot become JSON that follows a schema.
        prefill=traits.prefill and request.output.kind != "schema",
    )
    system = _system(request)
    if not messages:  # the vendor requires a user's turn
        messages, system = [{"role": "user", "content": system}] if system else [], []
    tools, names = encode_tools(request, target)
    respond = _output_tool(request, target)
    if respond is not None:
        tools.append(respond)
    output_name = respond["name"] if respond is not None else ""
    choice = encode_choice(request, tools, output_name)
    if choice is not None and choice["type"] in ("any", "tool") and not traits.forced_tools:
        system.append(text_of_choice(choice))
        free = {name: value for name, value in choice.items() if name not in ("type", "name")}
        choice = {"type": "auto", **free} if free else None
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
    """Return the tool whose arguments are the answer, for models without a schema field, and for
    schemas that do not fit into it."""
    if request.output.kind != "schema" or target.traits.structured == "none":
        return None
    schema = request.output.schema or {}
    is_object = schema.get("type", "object") == "object"  # as arguments must be
    if target.traits.structured == "schema" and (fits_answer(schema) or not is_object):
        return None
    if not is_object:
        path = next((ask.path for ask in request.asks if ask.feature == "schema_output"), None)
        raise Fault(Condition.UNSUPPORTED, param=path)
    return output_tool(for_tool(schema), request)


def _output(request: Request, thinking: dict[str, Any], *, as_tool: bool) -> dict[str, Any]:
    """Return the fields for thinking and for the answer's schema."""
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
    """Add sampling and the fields around the call. Return the stop sequences that the vendor
    refuses, which are those with only blanks."""
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
    """Add sampling: models refuse temperature together with top_p, and any sampling with
    thinking."""
    values: dict[Feature, float] = {}
    if request.temperature is not None:
        values["temperature"] = min(request.temperature, 1)
    if request.top_p is not None:
        values["top_p"] = request.top_p
    if request.top_k is not None:
        values["top_k"] = request.top_k
    if not (values and target.traits.sampling):
        return
    if body.get("thinking", {}).get("type") in ("enabled", "adaptive"):
        dropped += values
    else:
        if "temperature" in values and values.pop("top_p", None) is not None:
            dropped.append("top_p")
        body.update({str(name): value for name, value in values.items()})


def _mark(body: dict[str, Any], target: Target) -> None:
    limit_marks(body)
    if target.traits.auto_cache:
        mark_by_rule(body)

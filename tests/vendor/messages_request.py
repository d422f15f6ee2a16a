"""What the messages vendor accepts: the checks of a request, and what it asks for.

Source: protocols of the public API as of November 2026, versions 2023-06-01 and 2026-10-21.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from demo.family import ModelRequest, Tool
from demo.speech import prompt_tokens
from tests.vendor.family import Path, Refusal
from tests.vendor.fields import Fields, read_schema, read_strings, read_tool_name
from tests.vendor.messages_blocks import (
    NEW_VERSION,
    TOOL_NAME_MAX,
    check_block,
    check_known,
    check_text,
)
from tests.vendor.models import check_messages_model

VERSIONS = ("2023-06-01", NEW_VERSION)
MESSAGES_MAX = 100_000
STOPS_MAX = 8192
THINKING_TOKENS_MIN = 1024
EFFORTS = ("low", "medium", "high", "xhigh", "max")
CREATE_FIELDS = (
    *("billing_policy", "cache_control", "compaction", "container", "context_management"),
    *("diagnostics", "fallbacks", "inference_geo", "max_tokens", "mcp_servers", "messages"),
    *("metadata", "model", "output_config", "output_format", "service_tier", "speed"),
    *("stop_sequences", "stream", "system", "temperature", "thinking", "thread", "tool_choice"),
    *("tools", "top_k", "top_p"),
)
NOT_COUNTED = ("max_tokens", "metadata", "stream")
TOOL_FIELDS = (
    *("type", "name", "description", "input_schema", "strict", "cache_control", "defer_loading"),
    *("eager_input_streaming", "input_examples", "allowed_callers"),
)
CACHE_MARKS_MAX = 4
ALTERNATIVES = ("oneOf", "allOf", "anyOf")


@dataclass(slots=True)
class Turn:
    """Messages of one role in a row, as the vendor joins them."""

    role: str
    blocks: list[Fields]


def read_request(body: dict[str, Any], version: str, *, counting: bool) -> ModelRequest:
    request = Fields(body)
    unknown = NOT_COUNTED if counting else ()
    check_known(request, (name for name in CREATE_FIELDS if name not in unknown))
    model = request.text("model")
    if not counting:
        request.required("max_tokens")
    limit = request.integer("max_tokens", 0)
    turns = _read_messages(request, version)
    _check_results(turns)
    _check_system(request)
    _check_cache_marks(request)
    thinking = _read_thinking(request, limit)
    if thinking == "enabled":
        _check_last_thought(turns)
    _check_sampling(request, version, thinking=thinking is not None)
    check_messages_model(request, model, turns[-1].role)
    tools, tool_mode, parallel = _read_tools(request, thinking=thinking == "enabled")
    last_user = [turn for turn in turns if turn.role == "user"]
    return ModelRequest(
        model=model,
        prompt=_last_words(last_user),
        input_tokens=prompt_tokens(*(body.get(name) for name in ("system", "messages", "tools"))),
        stream=request.boolean("stream"),
        fresh=not any(_type(block) == "tool_result" for block in turns[-1].blocks),
        images=sum(_type(block) == "image" for turn in turns for block in turn.blocks),
        tools=tools,
        tool_mode=tool_mode,
        parallel=parallel,
        schema=_read_format(request),
        thinking=thinking is not None,
        thinking_shown=(body.get("thinking") or {}).get("display") != "omitted",
        limit_tokens=limit,
        stops=_read_stops(request),
    )


def _read_stops(request: Fields) -> tuple[str, ...]:
    found = read_strings(request, "stop_sequences", STOPS_MAX)
    for place, stop in enumerate(found):
        if not stop.strip():
            problem = "each stop sequence must contain non-whitespace"
            raise Refusal(problem, (*request.at("stop_sequences"), place))
    return found


def _type(block: Fields) -> str:
    return str(block.value["type"])


def _last_words(users: list[Turn]) -> str:
    for turn in reversed(users):
        words = [str(block.value["text"]) for block in turn.blocks if _type(block) == "text"]
        if words:
            return "\n".join(words)
    return ""


def _check_system(request: Fields) -> None:
    if isinstance(request.value.get("system"), str):
        return
    for block in request.entries("system"):
        block.required("type")
        block.choice("type", "text")
        check_text(block, "text")


def _check_cache_marks(request: Fields) -> None:
    found = sum(_marks(request.value.get(name)) for name in ("system", "messages", "tools"))
    found += request.has("cache_control")
    if found > CACHE_MARKS_MAX:
        problem = f"A maximum of {CACHE_MARKS_MAX} blocks with cache_control may be provided."
        raise Refusal(f"{problem} Found {found}.", kind="plain")


def _marks(value: Any) -> int:
    """How many objects inside are marked; a schema of a tool has none of its own."""
    if isinstance(value, list):
        return sum(map(_marks, value))
    if not isinstance(value, dict):
        return 0
    inside = _marks(value.get("content"))
    return inside + (value.get("cache_control") is not None)


def _check_last_thought(turns: list[Turn]) -> None:
    """What was thought before the calls that are now answered has to come back with them."""
    if turns[-1].role != "user" or _type(turns[-1].blocks[0]) != "tool_result":
        return
    first = turns[-2].blocks[0]
    if _type(first) not in ("thinking", "redacted_thinking"):
        problem = f"Expected `thinking` or `redacted_thinking`, but found `{_type(first)}`. When "
        problem += "`thinking` is enabled, a final `assistant` message must start with a thinking "
        raise Refusal(problem + "block.", first.path)


def _check_sampling(request: Fields, version: str, *, thinking: bool) -> None:
    for name in ("temperature", "top_p", "top_k"):
        if version == NEW_VERSION and request.has(name):
            raise Refusal(f"is not supported by version {NEW_VERSION}", request.at(name))
    temperature = request.number("temperature", 0, 1)
    request.number("top_p", 0, 1)
    request.integer("top_k", 0)
    if thinking and temperature not in (None, 1):
        raise Refusal("must be 1 when thinking is on", request.at("temperature"))
    request.object("metadata")
    request.choice("service_tier", "auto", "standard_only")
    request.choice("speed", "standard", "fast")


def _read_thinking(request: Fields, limit: int | None) -> str | None:
    """The kind of thinking; None when the answer starts without thinking."""
    wanted = request.object("thinking")
    if wanted is None:
        return None
    wanted.required("type")
    kind = wanted.choice("type", "enabled", "adaptive", "disabled", "between_tools")
    wanted.choice("display", "summarized", "omitted")
    if kind == "enabled":
        wanted.required("budget_tokens")
        budget = wanted.integer("budget_tokens", THINKING_TOKENS_MIN) or 0
        if limit is not None and budget >= limit:
            raise Refusal("must be less than max_tokens", wanted.at("budget_tokens"))
    return kind if kind in ("enabled", "adaptive") else None


def _read_format(request: Fields) -> dict[str, Any] | None:
    config = request.object("output_config")
    wanted = request.object("output_format")
    if config is not None:
        config.choice("effort", *EFFORTS)
        wanted = config.object("format") or wanted
    if wanted is None:
        return None
    wanted.required("type", "schema")
    wanted.choice("type", "json_schema")
    schema = read_schema(wanted, "schema")
    _check_closed(schema, wanted.at("schema"))
    return schema


def _check_closed(schema: Any, path: Path) -> None:
    """Raises Refusal when an object of a schema of the answer may have other fields."""
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        problem = "For 'object' type, 'additionalProperties' must be explicitly set to false"
        raise Refusal(problem, path)
    for name in ("properties", "$defs"):
        inner = schema.get(name)
        for key, value in inner.items() if isinstance(inner, dict) else ():
            _check_closed(value, (*path, name, key))
    _check_closed(schema.get("items"), (*path, "items"))


# Tools.

Mode = Literal["auto", "none", "any"]


def _read_tools(request: Fields, *, thinking: bool) -> tuple[tuple[Tool, ...], Mode, bool]:
    entries = request.entries("tools")
    tools = tuple(tool for entry in entries if (tool := _read_tool(entry)) is not None)
    names = [entry.value.get("name") for entry in entries if entry.has("name")]
    if len(set(names)) != len(names):
        raise Refusal("Tool names must be unique", request.at("tools"))
    choice = request.object("tool_choice")
    if choice is None:
        return tools, "auto", True
    if not entries:
        raise Refusal("may only be given with tools", choice.path)
    choice.required("type")
    kind = choice.choice("type", "auto", "any", "tool", "none")
    parallel = not choice.boolean("disable_parallel_tool_use")
    if thinking and kind in ("any", "tool"):
        raise Refusal("thinking may not be enabled when tool_choice forces a tool", choice.path)
    if kind == "tool":
        name = choice.text("name")
        tools = tuple(tool for tool in tools if tool.name == name)
        if not tools:
            raise Refusal(f"Tool '{name}' not found in provided tools", choice.path)
        return tools, "any", parallel
    mode: Mode = "none" if kind == "none" else "any" if kind == "any" else "auto"
    return tools, mode, parallel


def _read_tool(entry: Fields) -> Tool | None:
    """None for a tool the vendor runs itself: it is accepted and never called."""
    if entry.string("type") not in (None, "custom"):
        return None
    check_known(entry, TOOL_FIELDS)
    name = read_tool_name(entry, TOOL_NAME_MAX)
    entry.string("description")
    entry.required("input_schema")
    schema = Fields(entry.value["input_schema"], entry.at("input_schema"))
    schema.required("type")
    if any(map(schema.has, ALTERNATIVES)):
        problem = "input_schema does not support oneOf, allOf, or anyOf at the top level"
        raise Refusal(problem, schema.path)
    return Tool(name, read_schema(entry, "input_schema"))


# Messages.


def _read_messages(request: Fields, version: str) -> list[Turn]:
    messages = request.entries("messages", filled=True)
    if len(messages) > MESSAGES_MAX:
        raise Refusal(f"must hold {MESSAGES_MAX} entries at most", request.at("messages"))
    turns: list[Turn] = []
    for message in messages:
        message.required("role", "content")
        role = str(message.choice("role", "user", "assistant", "system"))
        blocks = _read_blocks(message, role, version)
        if role == "system":
            continue  # stands beside the talk, and parts no turn
        if turns and turns[-1].role == role:
            turns[-1].blocks.extend(blocks)
        else:
            turns.append(Turn(role, blocks))
    if not turns:
        raise Refusal("must hold a message of the user", request.at("messages"))
    if turns[0].role != "user":
        raise Refusal('first message must use the "user" role', request.at("messages"))
    return turns


def _read_blocks(message: Fields, role: str, version: str) -> list[Fields]:
    content = message.value["content"]
    if isinstance(content, str):
        if not content.strip():
            raise Refusal("text content must be non-empty", message.at("content"))
        return [Fields({"type": "text", "text": content}, message.at("content"))]
    blocks = message.entries("content", filled=True)
    for block in blocks:
        check_block(block, role, version)
    return blocks


def _check_results(turns: list[Turn]) -> None:
    """Each tool use is answered in the very next turn, and the answers come first there."""
    open_ids: list[str] = []
    for turn in turns:
        results = [block for block in turn.blocks if _type(block) == "tool_result"]
        for block in results:
            if block.value["tool_use_id"] not in open_ids:
                problem = f"unexpected tool_use_id '{block.value['tool_use_id']}'"
                raise Refusal(f"{problem}: no tool_use before it has this id", block.path)
            open_ids.remove(block.value["tool_use_id"])
        if open_ids:
            raise _unanswered(open_ids, turn)
        if results and any(_type(block) != "tool_result" for block in turn.blocks[: len(results)]):
            raise Refusal("tool_result blocks must come first", turn.blocks[0].path)
        if turn.role == "assistant":
            open_ids = [block.value["id"] for block in turn.blocks if _type(block) == "tool_use"]
    if len(set(open_ids)) != len(open_ids):
        raise Refusal("tool_use ids must be unique", turns[-1].blocks[0].path)
    if open_ids:
        raise _unanswered(open_ids, turns[-1])


def _unanswered(open_ids: list[str], turn: Turn) -> Refusal:
    ids = ", ".join(open_ids)
    problem = f"tool_use ids were found without tool_result blocks immediately after: {ids}"
    return Refusal(problem, turn.blocks[0].path[:2])

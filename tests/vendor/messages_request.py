"""Checks of requests by the messages vendor.

The anthropic SDK gives the fields and types; this module has the rules between them. Source:
protocols of the public API as of November 2026, versions 2023-06-01 and 2026-10-21.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any

from anthropic.types.beta.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.beta.message_create_params import MessageCreateParamsBase

from demo.messages import sign_thought
from tests.vendor.family import Path, Refusal
from tests.vendor.fields import Fields, read_schema, read_tool_name
from tests.vendor.models import check_messages_model
from tests.vendor.sdk_types import UNKNOWN, RequestType

NEW_VERSION = "2026-10-21"
VERSIONS = ("2023-06-01", NEW_VERSION)
# Fields that the SDK's types no longer have, or (`stream`) only in the subtypes.
SAMPLING = ("temperature", "top_p", "top_k")
OLDER = (*SAMPLING, "output_format")
CREATE = RequestType(MessageCreateParamsBase, extra=(*OLDER, "stream"))
COUNT = RequestType(MessageCountTokensParams, extra=OLDER)
# On the wire these are headers.
HEADER_FIELDS = ("betas", "fallback_credit_token", "user_profile_id", "workspace_id")

MESSAGES_MAX = 100_000
STOPS_MAX = 8192
TOOL_NAME_MAX = 128
CACHE_MARKS_MAX = 4
CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
THINKING_TOKENS_MIN = 1024
ALTERNATIVES = ("oneOf", "allOf", "anyOf")
BLOCKS = {
    "system": ("text",),
    "user": (*("text", "image", "document", "search_result", "tool_result", "container_upload"),),
    "assistant": (
        *("text", "thinking", "redacted_thinking", "tool_use", "document", "compaction"),
    ),
    "tool_result": ("text", "image", "document", "search_result", "tool_reference"),
}
PASSES = {"type": "text", "text": "x"}
# Blocks of the vendor's own tools come back as they were sent; their content is not checked.
SERVER_BLOCKS_END = ("server_tool_use", "_tool_result", "mcp_tool_use")


@dataclass(slots=True)
class Turn:
    """Consecutive messages of one role, as the vendor joins them."""

    role: str
    blocks: list[Fields]


def check_request(body: dict[str, Any], version: str, *, counting: bool) -> None:
    """Raise Refusal for what the vendor would refuse."""
    request = Fields(body)
    for name in HEADER_FIELDS:
        if name in body:
            raise Refusal(UNKNOWN, request.at(name))
    request.text("model")
    messages = request.entries("messages", filled=True)
    for name in ("content", "role"):
        for message in messages:
            message.required(name)
    (COUNT if counting else CREATE).check(_typed(body))
    limit = request.integer("max_tokens", 0)
    request.boolean("stream")
    _check_numbers(request, version)
    turns = _read_turns(messages, version)
    _check_results(turns)
    for block in request.entries("system") if isinstance(body.get("system"), list) else ():
        _check_text(block, "text")
    _check_cache_marks(request)
    thinking = _check_thinking(request, limit)
    if thinking == "enabled":
        _check_last_thought(turns)
    check_messages_model(request, body["model"], turns[-1].role)
    _check_tools(request, thinking=thinking == "enabled")
    _check_format(request)


def _typed(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body without the vendor's own tools and their blocks, which are not checked."""
    sent = dict(body)
    if isinstance(body.get("tools"), list):
        sent["tools"] = [tool for tool in body["tools"] if not _is_hosted(tool)]
    sent["messages"] = [
        {**message, "content": [PASSES if _is_of_server(block) else block for block in content]}
        if isinstance(content := message["content"], list)
        else message
        for message in body["messages"]
    ]
    return sent


def _is_of_server(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    return isinstance(kind, str) and kind != "tool_result" and kind.endswith(SERVER_BLOCKS_END)


def _is_hosted(tool: Any) -> bool:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return isinstance(kind, str) and kind != "custom"


def _type(block: Fields) -> str:
    return str(block.value["type"])


def _check_text(block: Fields, name: str) -> None:
    if not block.value[name].strip():
        message = "text content blocks must contain non-whitespace text"
        raise Refusal(message, block.at(name))


def _check_numbers(request: Fields, version: str) -> None:
    for name in SAMPLING:
        if version == NEW_VERSION and request.has(name):
            raise Refusal(f"is not supported by version {NEW_VERSION}", request.at(name))
    request.number("temperature", 0, 1)
    request.number("top_p", 0, 1)
    request.integer("top_k", 0)
    stops = request.value.get("stop_sequences") or []
    if len(stops) > STOPS_MAX:
        raise Refusal(f"must hold {STOPS_MAX} entries at most", request.at("stop_sequences"))
    for place, stop in enumerate(stops):
        if not stop.strip():
            message = "each stop sequence must contain non-whitespace"
            raise Refusal(message, (*request.at("stop_sequences"), place))


def _check_cache_marks(request: Fields) -> None:
    marks = sum(_marks(request.value.get(name)) for name in ("system", "messages", "tools"))
    marks += request.has("cache_control")
    if marks > CACHE_MARKS_MAX:
        problem = f"A maximum of {CACHE_MARKS_MAX} blocks with cache_control may be provided."
        raise Refusal(f"{problem} Found {marks}.", kind="plain")


def _marks(value: Any) -> int:
    """Count the objects inside that have a cache mark; the schema of a tool has none."""
    if isinstance(value, list):
        return sum(map(_marks, value))
    if not isinstance(value, dict):
        return 0
    inside = _marks(value.get("content"))
    return inside + (value.get("cache_control") is not None)


def _check_last_thought(turns: list[Turn]) -> None:
    """Raise Refusal if the thinking before the answered calls does not come back with them."""
    if turns[-1].role != "user" or _type(turns[-1].blocks[0]) != "tool_result":
        return
    first = turns[-2].blocks[0]
    if _type(first) not in ("thinking", "redacted_thinking"):
        problem = f"Expected `thinking` or `redacted_thinking`, but found `{_type(first)}`. When "
        problem += "`thinking` is enabled, a final `assistant` message must start with a thinking "
        raise Refusal(problem + "block.", first.path)


def _check_thinking(request: Fields, limit: int | None) -> str | None:
    """Return the kind of thinking; None when the answer starts without thinking."""
    thinking = request.value.get("thinking") or {}
    kind = thinking.get("type")
    if kind == "enabled":
        at = (*request.at("thinking"), "budget_tokens")
        Fields(thinking, request.at("thinking")).integer("budget_tokens", THINKING_TOKENS_MIN)
        if limit is not None and thinking["budget_tokens"] >= limit:
            raise Refusal("must be less than max_tokens", at)
    if kind not in ("enabled", "adaptive"):
        return None
    if request.value.get("temperature") not in (None, 1):
        raise Refusal("must be 1 when thinking is on", request.at("temperature"))
    return str(kind)


def _check_format(request: Fields) -> None:
    config = request.object("output_config")
    described = request.object("output_format")
    if config is not None:
        described = config.object("format") or described
    if described is not None:
        described.required("type", "schema")
        described.choice("type", "json_schema")
        _check_closed(read_schema(described, "schema"), described.at("schema"))


def _check_closed(schema: Any, path: Path) -> None:
    """Raise Refusal if an object in the answer's schema allows additional fields."""
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


def _check_tools(request: Fields, *, thinking: bool) -> None:
    tools = request.entries("tools")
    for tool in tools:
        if not _is_hosted(tool.value):
            _check_tool(tool)
    names = [tool.value.get("name") for tool in tools if tool.has("name")]
    if len(set(names)) != len(names):
        raise Refusal("Tool names must be unique", request.at("tools"))
    choice = request.object("tool_choice")
    if choice is None:
        return
    if not tools:
        raise Refusal("may only be given with tools", choice.path)
    kind = choice.value["type"]
    if thinking and kind in ("any", "tool"):
        raise Refusal("thinking may not be enabled when tool_choice forces a tool", choice.path)
    if kind == "tool" and choice.text("name") not in names:
        name = choice.value["name"]
        raise Refusal(f"Tool '{name}' not found in provided tools", choice.path)


def _check_tool(tool: Fields) -> None:
    read_tool_name(tool, TOOL_NAME_MAX)
    schema = Fields(tool.value["input_schema"], tool.at("input_schema"))
    schema.required("type")
    if any(map(schema.has, ALTERNATIVES)):
        message = "input_schema does not support oneOf, allOf, or anyOf at the top level"
        raise Refusal(message, schema.path)
    read_schema(tool, "input_schema")


# Messages.


def _read_turns(messages: list[Fields], version: str) -> list[Turn]:
    if len(messages) > MESSAGES_MAX:
        raise Refusal(f"must hold {MESSAGES_MAX} entries at most", ("messages",))
    turns: list[Turn] = []
    for message in messages:
        role = message.value["role"]
        blocks = _read_blocks(message, role, version)
        if role == "system":
            continue  # not part of the conversation, and does not separate turns
        if turns and turns[-1].role == role:
            turns[-1].blocks.extend(blocks)
        else:
            turns.append(Turn(role, blocks))
    if not turns:
        raise Refusal("must hold a message of the user", ("messages",))
    if turns[0].role != "user":
        raise Refusal('first message must use the "user" role', ("messages",))
    return turns


def _read_blocks(message: Fields, role: str, version: str) -> list[Fields]:
    content = message.value["content"]
    if isinstance(content, str):
        if not content.strip():
            raise Refusal("text content must be non-empty", message.at("content"))
        return [Fields({"type": "text", "text": content}, message.at("content"))]
    blocks = message.entries("content", filled=True)
    for block in blocks:
        if not _is_of_server(block.value):
            _check_block(block, role, version)
    return blocks


def _check_block(block: Fields, role: str, version: str) -> None:
    kind = _type(block)
    if version == NEW_VERSION and role == "assistant" and kind == "document":
        raise Refusal("documents are not allowed in assistant messages", block.path)
    if version == NEW_VERSION and role == "user" and block.value.get("citations"):
        raise Refusal("citations are not allowed in user messages", block.at("citations"))
    block.choice("type", *BLOCKS[role])
    if kind == "text":
        _check_text(block, "text")
    elif kind in ("image", "document"):
        _check_source(block)
    elif kind == "thinking" and block.text("signature") != sign_thought(block.value["thinking"]):
        raise Refusal("Invalid `signature` in `thinking` block", block.path)
    elif kind == "tool_use":
        if not CALL_ID.fullmatch(block.text("id")):
            raise Refusal("String should match pattern '^[a-zA-Z0-9_-]+$'", block.at("id"))
        read_tool_name(block, TOOL_NAME_MAX)
    elif kind == "tool_result":
        for part in (
            block.entries("content") if isinstance(block.value.get("content"), list) else ()
        ):
            _check_block(part, "tool_result", "")


def _check_source(block: Fields) -> None:
    source = Fields(block.value["source"], block.at("source"))
    kind = source.value["type"]
    if kind == "url" and not source.text("url").startswith(("https://", "http://")):
        raise Refusal("must be an http(s) URL", source.at("url"))
    if kind == "file":
        source.text("file_id")
    if kind == "text":
        source.text("data")
    if kind == "base64":
        try:
            base64.b64decode(source.text("data"), validate=True)
        except (binascii.Error, ValueError) as error:
            raise Refusal("invalid base64 data", source.at("data")) from error


def _check_results(turns: list[Turn]) -> None:
    """Check that the next turn answers each tool use, and that these answers come first in it."""
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

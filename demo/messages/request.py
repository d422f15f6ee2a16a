"""What the messages vendor accepts: the checks of a request, and what it asks for.

Source: protocols of the public API as of November 2026, versions 2023-06-01 and 2026-10-21.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Literal

from demo.script.family import Ask, Refusal, Tool
from demo.script.fields import Fields, read_schema, read_strings, read_tool_name
from demo.script.speech import prompt_tokens

NEW_VERSION = "2026-10-21"
VERSIONS = ("2023-06-01", NEW_VERSION)
MESSAGES_MAX = 100_000
STOPS_MAX = 8192
TOOL_NAME_MAX = 128
THINKING_TOKENS_MIN = 1024
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
# Fields of other families that only a gateway's mistake can bring here.
FOREIGN_FIELDS = ("stream_options", "max_completion_tokens", "response_format", "n")
USER_BLOCKS = ("text", "image", "document", "search_result", "tool_result", "container_upload")
ASSISTANT_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "document", "compaction")
# Blocks of the vendor's own tools come back as they were sent; their insides are not checked.
SERVER_BLOCKS_END = ("server_tool_use", "_tool_result", "mcp_tool_use")


@dataclass(slots=True)
class Turn:
    """Messages of one role in a row, as the vendor joins them."""

    role: str
    blocks: list[Fields]


def read_request(body: dict[str, Any], version: str, *, counting: bool) -> Ask:
    request = Fields(body)
    foreign = (*FOREIGN_FIELDS, "max_tokens", "stream") if counting else FOREIGN_FIELDS
    for name in foreign:
        if name in body:
            raise Refusal("Extra inputs are not permitted", request.at(name))
    model = request.text("model")
    if not counting:
        request.required("max_tokens")
    limit = request.integer("max_tokens", 0)
    turns = _read_messages(request, version)
    _check_results(turns)
    _check_system(request)
    thinking = _read_thinking(request, limit)
    _check_sampling(request, version, thinking=thinking is not None)
    tools, tool_mode, parallel = _read_tools(request, thinking=thinking == "enabled")
    last_user = [turn for turn in turns if turn.role == "user"]
    return Ask(
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
        stops=read_strings(request, "stop_sequences", STOPS_MAX),
    )


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
        block.text("text")


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
    return read_schema(wanted, "schema")


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
    name = read_tool_name(entry, TOOL_NAME_MAX)
    entry.string("description")
    entry.required("input_schema")
    schema = Fields(entry.value["input_schema"], entry.at("input_schema"))
    schema.required("type")
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
    return turns


def _read_blocks(message: Fields, role: str, version: str) -> list[Fields]:
    content = message.value["content"]
    if isinstance(content, str):
        if not content:
            raise Refusal("text content must be non-empty", message.at("content"))
        return [Fields({"type": "text", "text": content}, message.at("content"))]
    blocks = message.entries("content", filled=True)
    for block in blocks:
        _check_block(block, role, version)
    return blocks


def _check_block(block: Fields, role: str, version: str) -> None:
    block.required("type")
    kind = block.string("type") or ""
    if kind != "tool_result" and kind.endswith(SERVER_BLOCKS_END):
        return
    if role == "assistant":
        block.choice("type", *ASSISTANT_BLOCKS)
    else:
        block.choice("type", *(("text",) if role == "system" else USER_BLOCKS))
    if version == NEW_VERSION and role == "assistant" and kind == "document":
        raise Refusal("documents are not allowed in assistant messages", block.path)
    if version == NEW_VERSION and role == "user" and block.value.get("citations"):
        raise Refusal("citations are not allowed in user messages", block.at("citations"))
    if kind == "text":
        block.text("text")
    elif kind == "image":
        _check_image(block)
    elif kind == "thinking":
        block.required("thinking")
        block.string("thinking")
        block.text("signature")
    elif kind == "redacted_thinking":
        block.text("data")
    elif kind == "tool_use":
        block.text("id")
        read_tool_name(block, TOOL_NAME_MAX)
        block.required("input")
        block.object("input")
    elif kind == "tool_result":
        block.text("tool_use_id")
        block.boolean("is_error")
        _check_result_content(block)


def _check_image(block: Fields) -> None:
    block.required("source")
    source = Fields(block.value["source"], block.at("source"))
    source.required("type")
    kind = source.choice("type", "base64", "url", "file")
    if kind == "url" and not source.text("url").startswith(("https://", "http://")):
        raise Refusal("must be an http(s) URL", source.at("url"))
    if kind == "file":
        source.text("file_id")
    if kind == "base64":
        source.required("media_type")
        source.choice("media_type", *IMAGE_TYPES)
        try:
            base64.b64decode(source.text("data"), validate=True)
        except (binascii.Error, ValueError) as error:
            raise Refusal("invalid base64 data", source.at("data")) from error


def _check_result_content(block: Fields) -> None:
    if isinstance(block.value.get("content"), str):
        return
    for part in block.entries("content"):
        part.required("type")
        part.choice("type", "text", "image", "document", "search_result", "tool_reference")


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

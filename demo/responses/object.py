"""The objects of the responses vendor: the response with its settings, its items, its usage.

Knows no stream and no path. Shapes: official types of the openai SDK as of November 2026.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

from demo.responses.stored import seal
from demo.script.directives import Script
from demo.script.family import Ask, Call, Counts, Said

SEALED_REASONING = "reasoning.encrypted_content"


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def opened_response(ask: Ask) -> dict[str, Any]:
    """A response as it starts: no output and no usage as yet, the settings of the request."""
    body = ask.body
    tier = body.get("service_tier")
    return {
        "id": new_id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": bool(body.get("background")),
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "model": ask.model,
        "output": [],
        "parallel_tool_calls": ask.parallel,
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "prompt_cache_retention": body.get("prompt_cache_retention"),
        "reasoning": _reasoning(body.get("reasoning") or {}),
        "safety_identifier": body.get("safety_identifier"),
        "service_tier": "default" if tier in (None, "auto") else tier,
        "store": is_stored(ask),
        "temperature": _given(body, "temperature", 1.0),
        "text": _text(body.get("text") or {}),
        "tool_choice": _given(body, "tool_choice", "auto"),
        "tools": [_tool(tool) for tool in body.get("tools") or ()],
        "top_logprobs": _given(body, "top_logprobs", 0),
        "top_p": _given(body, "top_p", 1.0),
        "truncation": _given(body, "truncation", "disabled"),
        "usage": None,
        "user": body.get("user"),
        "metadata": body.get("metadata") or {},
    }


def finished_response(
    opened: dict[str, Any], said: Said, output: list[dict[str, Any]], script: Script
) -> dict[str, Any]:
    cut = said.finish == "length"
    return {
        **opened,
        "status": "incomplete" if cut else "completed",
        "completed_at": None if cut else int(time.time()),
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output,
        "usage": None if script.usage == "none" else usage(said.counts),
    }


def is_stored(ask: Ask) -> bool:
    return ask.body.get("store") is not False


def _given(body: Mapping[str, Any], name: str, usual: Any) -> Any:
    return usual if body.get(name) is None else body[name]


def _reasoning(wanted: Mapping[str, Any]) -> dict[str, Any]:
    summary = wanted.get("summary") or wanted.get("generate_summary")
    return {"effort": wanted.get("effort"), "summary": summary}


def _text(config: Mapping[str, Any]) -> dict[str, Any]:
    wanted = config.get("format") or {"type": "text"}
    if wanted["type"] == "json_schema":
        wanted = {"description": None, **wanted, "strict": bool(wanted.get("strict"))}
    return {"format": wanted, "verbosity": config.get("verbosity") or "medium"}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool["type"] != "function":
        return dict(tool)
    usual = {"description": None, "parameters": None}
    return {**usual, **tool, "strict": tool.get("strict") is not False}


def usage(counts: Counts) -> dict[str, Any]:
    return {
        "input_tokens": counts.input,
        "input_tokens_details": {
            "cached_tokens": counts.cached,
            "cache_write_tokens": counts.written,
        },
        "output_tokens": counts.output,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.input + counts.output,
    }


# Items.


def output_items(ask: Ask, said: Said, script: Script) -> list[dict[str, Any]]:
    """The finished items of an answer, in order."""
    items = []
    cut = said.finish == "length"
    if said.thoughts:
        items.append(_thought(ask, said))
    if said.pieces or not (said.calls or cut):
        text = "".join(said.pieces)
        part: dict[str, Any]
        # `type` names the kind of an error; where none is asked for, that of the answer's part.
        if script.type == "refusal" or said.finish == "refusal":
            part = {"type": "refusal", "refusal": text}
        else:
            part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
        items.append(
            {
                "id": new_id("msg"),
                "type": "message",
                "status": "incomplete" if cut else "completed",
                "role": "assistant",
                "content": [part],
            }
        )
    spaces = _namespaces(ask.body)
    items.extend(_call(call, spaces) for call in said.calls)
    return items


def _thought(ask: Ask, said: Said) -> dict[str, Any]:
    text = "".join(said.thoughts)
    summary = [{"type": "summary_text", "text": text}] if ask.thinking_shown else []
    item: dict[str, Any] = {"id": new_id("rs"), "type": "reasoning", "summary": summary}
    if SEALED_REASONING in (ask.body.get("include") or ()):
        item["encrypted_content"] = seal(text)
    return item


def _namespaces(body: Mapping[str, Any]) -> dict[str, str]:
    return {
        inner["name"]: tool["name"]
        for tool in body.get("tools") or ()
        if tool["type"] == "namespace"
        for inner in tool["tools"]
    }


def _call(call: Call, spaces: Mapping[str, str]) -> dict[str, Any]:
    item = {
        "id": f"{'ctc' if call.custom else 'fc'}_{call.id}",
        "type": "custom_tool_call" if call.custom else "function_call",
        "status": "completed",
        "call_id": f"call_{call.id}",
        "name": call.name,
        "input" if call.custom else "arguments": call.arguments,
    }
    if call.name in spaces:
        item["namespace"] = spaces[call.name]
    return item


def input_items(ask: Ask) -> list[dict[str, Any]]:
    """The input of a request as the vendor keeps it: typed items with ids, parts for words."""
    given = ask.body.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return [_input_item(item) for item in items]


def _input_item(item: Mapping[str, Any]) -> dict[str, Any]:
    kind = item.get("type") or ("message" if "role" in item else "item_reference")
    if kind != "message":
        return {**item, "type": kind, "id": item.get("id") or new_id("item")}
    content = item["content"]
    if isinstance(content, str):
        assistant = item["role"] == "assistant"
        content = [{"type": "output_text" if assistant else "input_text", "text": content}]
    name = item.get("id") or new_id("msg")
    return {**item, "type": kind, "id": name, "status": "completed", "content": content}


def compaction(ask: Ask, said: Said) -> dict[str, Any]:
    """The answer to a compaction: the words of the user, and one sealed item for the rest."""
    users = [item for item in input_items(ask) if item.get("role") == "user"]
    rest = {
        "id": new_id("cmp"),
        "type": "compaction",
        "encrypted_content": seal("".join(said.pieces)),
    }
    return {
        "id": new_id("resp"),
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [*users, rest],
        "usage": usage(said.counts),
    }

"""What the messages vendor accepts as a block of content, and how it signs thoughts.

Fields it does not know are refused, as the real vendor refuses them. Source: protocols of the
public API as of November 2026. Imported by this folder.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable

from demo.messages import sign_thought
from tests.vendor.family import Refusal
from tests.vendor.fields import Fields, read_tool_name

NEW_VERSION = "2026-10-21"
TOOL_NAME_MAX = 128
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
USER_BLOCKS = ("text", "image", "document", "search_result", "tool_result", "container_upload")
ASSISTANT_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "document", "compaction")
RESULT_BLOCKS = ("text", "image", "document", "search_result", "tool_reference")
# Blocks of the vendor's own tools come back as they were sent; their insides are not checked.
SERVER_BLOCKS_END = ("server_tool_use", "_tool_result", "mcp_tool_use")
# Besides `type`; what is not listed here is not checked.
FIELDS = {
    "text": ("text", "citations", "cache_control"),
    "image": ("source", "cache_control"),
    "document": ("source", "title", "context", "citations", "cache_control"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name", "input", "cache_control", "caller", "toolset_name"),
    "tool_result": ("tool_use_id", "content", "is_error", "cache_control"),
}
DOCUMENT_SOURCES = ("base64", "text", "url", "content", "file")


def check_known(fields: Fields, allowed: Iterable[str]) -> None:
    """Raises Refusal for the first field that is not allowed."""
    known = frozenset(allowed)
    for name in fields.value:
        if name not in known:
            raise Refusal("Extra inputs are not permitted", fields.at(name))


def check_block(block: Fields, role: str, version: str) -> None:
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
    _check_kind(block, kind)


def _check_kind(block: Fields, kind: str) -> None:
    if kind in FIELDS:
        check_known(block, ("type", *FIELDS[kind]))
    match kind:
        case "text":
            check_text(block, "text")
        case "image":
            _check_image(block)
        case "document":
            _check_document(block)
        case "thinking":
            _check_thought(block)
        case "redacted_thinking":
            block.text("data")
        case "tool_use":
            if not CALL_ID.fullmatch(block.text("id")):
                raise Refusal("String should match pattern '^[a-zA-Z0-9_-]+$'", block.at("id"))
            read_tool_name(block, TOOL_NAME_MAX)
            block.required("input")
            block.object("input")
        case "tool_result":
            block.text("tool_use_id")
            block.boolean("is_error")
            _check_result_content(block)


def check_text(block: Fields, name: str) -> None:
    """Raises Refusal for a text of nothing but white space, too."""
    if not block.text(name).strip():
        problem = "text content blocks must contain non-whitespace text"
        raise Refusal(problem, block.at(name))


def _check_thought(block: Fields) -> None:
    block.required("thinking")
    shown = block.string("thinking") or ""
    if block.text("signature") != sign_thought(shown):
        raise Refusal("Invalid `signature` in `thinking` block", block.path)


def _check_image(block: Fields) -> None:
    source = _source(block)
    kind = source.choice("type", "base64", "url", "file")
    _check_address(source, str(kind))
    if kind == "base64":
        source.required("media_type")
        source.choice("media_type", *IMAGE_TYPES)
        _check_base64(source)


def _check_document(block: Fields) -> None:
    source = _source(block)
    kind = str(source.choice("type", *DOCUMENT_SOURCES))
    _check_address(source, kind)
    if kind == "base64":
        source.required("media_type")
        source.choice("media_type", "application/pdf")
        _check_base64(source)
    elif kind == "text":
        source.required("media_type")
        source.choice("media_type", "text/plain")
        source.text("data")


def _source(block: Fields) -> Fields:
    block.required("source")
    source = Fields(block.value["source"], block.at("source"))
    source.required("type")
    return source


def _check_address(source: Fields, kind: str) -> None:
    if kind == "url" and not source.text("url").startswith(("https://", "http://")):
        raise Refusal("must be an http(s) URL", source.at("url"))
    if kind == "file":
        source.text("file_id")


def _check_base64(source: Fields) -> None:
    try:
        base64.b64decode(source.text("data"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refusal("invalid base64 data", source.at("data")) from error


def _check_result_content(block: Fields) -> None:
    if isinstance(block.value.get("content"), str):
        return
    for part in block.entries("content"):
        part.required("type")
        kind = str(part.choice("type", *RESULT_BLOCKS))
        _check_kind(part, kind)

"""The conversation in clients' requests: system texts, turns and blocks, for ``decode_request``."""

from collections.abc import Callable
from typing import Any, Literal

from adapters.family.base64_data import standard_base64
from adapters.family.reading import field_path, objects, optional, required, string
from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.ir.parts import (
    CacheMark,
    Hosted,
    Media,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from adapters.ir.request import Ask
from adapters.json.jsonio import Spans, compact, elements, loads
from adapters.json.structure import Steps
from adapters.messages.parts import decode_citations, original_id

_TTLS_S = {"5m": 300, "1h": 3600}
_FIELD = "cache_control"


def decode_mark(block: dict[str, Any], path: str, asks: list[Ask]) -> CacheMark | None:
    """Return the cache mark of a client's tool or block; None if it has none."""
    mark = optional(block, _FIELD, path, dict)
    if mark is None:
        return None
    path = f"{path}.{_FIELD}"
    asks.append(Ask("cache_mark", path))
    return CacheMark(_TTLS_S.get(string(mark, "ttl", path)))


_PDF = "application/pdf"


def _media(
    kind: Literal["image", "file"],
    source: dict[str, Any],
    path: str,
    asks: list[Ask],
    **fields: Any,
) -> Media | None:
    """Return media given by data, URL, or the vendor's file id; None for any other source."""
    at, image, by = f"{path}.source", kind == "image", source["type"]
    if by == "base64":
        mime = _PDF
        if image or "media_type" in source:
            mime = required(source, "media_type", at, str).lower()
        data = standard_base64(required(source, "data", at, str), f"{at}.data")
        asks.append(Ask("image_data" if image else "document_data", path))
        return Media(kind, mime, data=data, path=path, **fields)
    if by == "url":
        asks.append(Ask("image_url" if image else "document_url", path))
        url = required(source, "url", at, str)
        return Media(kind, "" if image else _PDF, url=url, path=path, **fields)
    if by == "file":
        asks.append(Ask("file_ref", path))
        return Media(kind, ref=required(source, "file_id", at, str), path=path, **fields)
    return None


def decode_image(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """Return an image."""
    source, _, at = _source(block, path)
    media = _media("image", source, path, asks, cache=decode_mark(block, path, asks))
    if media is None:
        raise wrong_value(f"{at}.type", "expected base64, url or file")
    return (media,)


def decode_document(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """Return a document, preceded by the client's text about its context."""
    source, kind, at = _source(block, path)
    mark = decode_mark(block, path, asks)
    citations = optional(block, "citations", path, dict) or {}
    if citations.get("enabled"):
        asks.append(Ask("citations", f"{path}.citations"))
    context = string(block, "context", path)
    before: tuple[Part, ...] = (Text(context),) if context else ()
    name = string(block, "title", path)
    if kind == "content":
        return before + _document_content(source, at, asks, mark)
    if kind == "text":
        text = required(source, "data", at, str)
        asks.append(Ask("text_document", path))
        plain = Media("file", "text/plain", data=text, name=name, plain=True, cache=mark, path=path)
        return (*before, plain)
    media = _media("file", source, path, asks, name=name, cache=mark)
    if media is None:
        raise wrong_value(f"{at}.type", "expected base64, text, url, content or file")
    return (*before, media)


def decode_search_result(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """Return a result of the client's own search as a text with its source."""
    title = string(block, "title", path)
    source = string(block, "source", path)
    lines = [line for line in (title, source) if line]
    lines += [required(each, "text", at, str) for each, at in blocks(block, "content", path)]
    return (Text("\n".join(lines), decode_mark(block, path, asks)),)


def _source(block: dict[str, Any], path: str) -> tuple[dict[str, Any], str, str]:
    at = f"{path}.source"
    source = required(block, "source", path, dict)
    return source, required(source, "type", at, str), at


def _document_content(
    source: dict[str, Any], path: str, asks: list[Ask], mark: CacheMark | None
) -> tuple[Part, ...]:
    """Return the parts of a document whose content is text or blocks."""
    text = source.get("content")
    if isinstance(text, str):
        return (Text(text, mark),) if text else ()
    parts: list[Part] = []
    for block, at in blocks(source, "content", path):
        if block.get("type") == "image":
            parts += decode_image(block, at, asks)
        else:
            parts.append(Text(required(block, "text", at, str)))
    return tuple(parts)


def blocks(holder: dict[str, Any], name: str, at: str) -> list[tuple[dict[str, Any], str]]:
    """Return the objects of an array, each with its path. Raises Fault FIELD_MISSING for null."""
    for index, block in enumerate(optional(holder, name, at, list) or ()):
        if block is None:
            raise Fault(Condition.FIELD_MISSING, param=f"{field_path(at, name)}[{index}]")
    return objects(holder, name, at)


_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
# Coding clients start with a text for the vendor's accounting that differs in each call. With it,
# no other vendor would ever find anything in its cache.
_BILLING = "x-anthropic-billing-header:"
_HOSTED_ENDS = ("server_tool_use", "_tool_result", "mcp_tool_use", "container_upload")


def decode_system(fields: dict[str, Any], asks: list[Ask]) -> tuple[Text, ...]:
    """Return the texts in the field ``system``, a string or text blocks."""
    value = fields.get("system")
    if isinstance(value, str):
        return (Text(value),) if value else ()
    texts: list[Text] = []
    for block, path in blocks(fields, "system", ""):
        text = _text(block, path, asks)
        if text.text.startswith(_BILLING):
            asks.append(Ask("other", path))
        else:
            texts.append(text)
    return tuple(texts)


def turn_steps(spans: Spans, asks: list[Ask]) -> Steps[tuple[tuple[Part, ...], tuple[Turn, ...]]]:
    """Return the system texts before the first turn, and the turns, in steps."""
    messages = elements(spans.raw("messages") or b"")
    if messages is None:
        raise wrong_type("messages", "expected an array")
    leading: list[Part] = []
    turns: list[tuple[Role, list[Part]]] = []
    for at, message in enumerate(messages):
        role, parts = _message(loads(bytes(message)), f"messages[{at}]", asks)
        if role == "system":
            if not turns:
                leading += parts
            else:
                asks.append(Ask("system_turn", f"messages[{at}]"))
                turns.append((role, parts))
        elif turns and turns[-1][0] == role:
            turns[-1][1].extend(parts)
        else:
            turns.append((role, parts))
        yield False
    if turns and turns[-1][0] == "assistant":
        asks.append(Ask("prefill", f"messages[{len(messages) - 1}]"))
    return tuple(leading), tuple(_turn(role, parts) for role, parts in turns)


def _turn(role: Role, parts: list[Part]) -> Turn:
    """Return a turn; in a user's turn the results come first."""
    if role == "user":
        parts.sort(key=lambda part: not isinstance(part, ToolResult))
    return Turn(role, tuple(parts))


def _message(message: object, path: str, asks: list[Ask]) -> tuple[Role, list[Part]]:
    if message is None:
        raise Fault(Condition.FIELD_MISSING, param=path)
    if not isinstance(message, dict):
        raise wrong_type(path, "expected an object")
    role = _ROLES.get(required(message, "role", path, str))
    if role is None:
        raise wrong_value(f"{path}.role", "expected user, assistant or system")
    content = message.get("content")
    if isinstance(content, str):
        return role, [Text(content)] if content else []
    if content is None:
        raise Fault(Condition.FIELD_MISSING, param=f"{path}.content")
    parts: list[Part] = []
    for block, at in blocks(message, "content", path):
        parts += _block(block, role, at, asks)
    return role, parts


def _block(
    block: dict[str, Any], role: Role, path: str, asks: list[Ask]
) -> tuple[Part, ...] | list[Part]:
    kind = required(block, "type", path, str)
    decode = _OF_ROLE[role].get(kind)
    if decode is not None:
        return decode(block, path, asks)
    if kind != "tool_result" and kind.endswith(_HOSTED_ENDS):
        asks.append(Ask("file_ref" if kind == "container_upload" else "hosted_history", path))
        return (Hosted(kind, block, path),)
    kinds = ", ".join(_OF_ROLE[role])
    raise wrong_value(f"{path}.type", f"expected one of {kinds} for the role {role}")


def _text(block: dict[str, Any], path: str, asks: list[Ask]) -> Text:
    kind = required(block, "type", path, str)
    if kind != "text":
        raise wrong_value(f"{path}.type", "expected text")
    return Text(
        required(block, "text", path, str),
        decode_mark(block, path, asks),
        decode_citations(block.get("citations")),
    )


def _text_parts(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    text = _text(block, path, asks)
    return (text,) if text.text else ()


def _thinking(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    thought = string(block, "thinking", path)
    signature = string(block, "signature", path)
    return (Reasoning(thought, opaque=signature),)


def _redacted(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    return (Reasoning("", opaque=required(block, "data", path, str)),)


def _call(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    return (
        ToolCall(
            original_id(required(block, "id", path, str)),
            required(block, "name", path, str),
            compact(required(block, "input", path, dict)),
            cache=decode_mark(block, path, asks),
        ),
    )


def _result(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    content = block.get("content")
    parts: list[Any] = []
    if isinstance(content, str):
        parts = [Text(content)] if content else []
    else:
        for each, at in blocks(block, "content", path):
            parts += _result_part(each, at, asks)
    return (
        ToolResult(
            original_id(required(block, "tool_use_id", path, str)),
            tuple(parts),
            error=bool(optional(block, "is_error", path, bool)),
            cache=decode_mark(block, path, asks),
        ),
    )


def _result_part(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    kind = required(block, "type", path, str)
    decode = _IN_RESULT.get(kind)
    if decode is None:
        raise wrong_value(f"{path}.type", f"expected one of {', '.join(_IN_RESULT)}")
    return decode(block, path, asks)


def _tool_reference(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """Return the name of a tool that a search for tools returned."""
    return (Text(required(block, "tool_name", path, str)),)


def _compaction(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """Return the summary of earlier turns, without which the conversation would have no
    beginning."""
    summary = string(block, "content", path)
    return (Text(summary),) if summary else ()


_Decode = Callable[[dict[str, Any], str, list[Ask]], tuple[Part, ...]]
_IN_RESULT: dict[str, _Decode] = {
    "text": _text_parts,
    "image": decode_image,
    "document": decode_document,
    "search_result": decode_search_result,
    "tool_reference": _tool_reference,
}
_OF_ROLE: dict[Role, dict[str, _Decode]] = {
    "system": {"text": _text_parts},
    "user": {
        "text": _text_parts,
        "image": decode_image,
        "document": decode_document,
        "search_result": decode_search_result,
        "tool_result": _result,
    },
    "assistant": {
        "text": _text_parts,
        "thinking": _thinking,
        "redacted_thinking": _redacted,
        "tool_use": _call,
        "document": decode_document,
        "compaction": _compaction,
    },
}

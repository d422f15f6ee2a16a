"""The conversation in requests of clients: system text, turns, and the blocks in them. Imported by
``decode_request``.
"""

from collections.abc import Callable
from typing import Any

from adapters.family import client_values as reading
from adapters.family.base64_data import standard_base64
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
from adapters.messages.parts import decode_citations, given_id

_TTLS_S = {"5m": 300, "1h": 3600}
_FIELD = "cache_control"


def decode_mark(block: dict[str, Any], path: str, asks: list[Ask]) -> CacheMark | None:
    """The mark of a tool or block of a client; None when it has none."""
    if block.get(_FIELD) is None:
        return None
    path = f"{path}.{_FIELD}"
    mark = reading.entry(block[_FIELD], path)
    asks.append(Ask("cache_mark", path))
    return CacheMark(_TTLS_S.get(reading.optional_text(mark.get("ttl"), f"{path}.ttl")))


_PDF = "application/pdf"


def decode_image(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """An image by its data, its URL, or the vendor's id of a file."""
    source, kind, at = _source(block, path)
    mark = decode_mark(block, path, asks)
    if kind == "base64":
        mime = reading.text(source.get("media_type"), f"{at}.media_type").lower()
        asks.append(Ask("image_data", path))
        data = standard_base64(reading.text(source.get("data"), f"{at}.data"), f"{at}.data")
        return (Media("image", mime, data=data, cache=mark, path=path),)
    if kind == "url":
        asks.append(Ask("image_url", path))
        url = reading.text(source.get("url"), f"{at}.url")
        return (Media("image", url=url, cache=mark, path=path),)
    if kind == "file":
        asks.append(Ask("file_ref", path))
        ref = reading.text(source.get("file_id"), f"{at}.file_id")
        return (Media("image", ref=ref, cache=mark, path=path),)
    raise wrong_value(f"{at}.type", "expected base64, url or file")


def decode_document(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """A document, behind what the client says of its context."""
    source, kind, at = _source(block, path)
    mark = decode_mark(block, path, asks)
    citations = reading.optional_entry(block.get("citations"), f"{path}.citations")
    if citations.get("enabled"):
        asks.append(Ask("citations", f"{path}.citations"))
    said = reading.optional_text(block.get("context"), f"{path}.context")
    before: tuple[Part, ...] = (Text(said),) if said else ()
    name = reading.optional_text(block.get("title"), f"{path}.title")
    if kind == "content":
        return before + _document_content(source.get("content"), f"{at}.content", asks, mark)
    if kind == "base64":
        mime = reading.text(source.get("media_type", _PDF), f"{at}.media_type").lower()
        data = standard_base64(reading.text(source.get("data"), f"{at}.data"), f"{at}.data")
        asks.append(Ask("document_data", path))
        found = Media("file", mime, data=data, name=name, cache=mark, path=path)
    elif kind == "text":
        text = reading.text(source.get("data"), f"{at}.data")
        asks.append(Ask("text_document", path))
        found = Media("file", "text/plain", data=text, name=name, plain=True, cache=mark, path=path)
    elif kind == "url":
        asks.append(Ask("document_url", path))
        url = reading.text(source.get("url"), f"{at}.url")
        found = Media("file", _PDF, url=url, name=name, cache=mark, path=path)
    elif kind == "file":
        asks.append(Ask("file_ref", path))
        ref = reading.text(source.get("file_id"), f"{at}.file_id")
        found = Media("file", ref=ref, name=name, cache=mark, path=path)
    else:
        raise wrong_value(f"{at}.type", "expected base64, text, url, content or file")
    return (*before, found)


def decode_search_result(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """What the client's own search has found: a text with its source."""
    title = reading.optional_text(block.get("title"), f"{path}.title")
    source = reading.optional_text(block.get("source"), f"{path}.source")
    lines = [line for line in (title, source) if line]
    for at, each in enumerate(reading.entries(block.get("content"), f"{path}.content")):
        lines.append(reading.text(each.get("text"), f"{path}.content[{at}].text"))
    return (Text("\n".join(lines), decode_mark(block, path, asks)),)


def _source(block: dict[str, Any], path: str) -> tuple[dict[str, Any], str, str]:
    at = f"{path}.source"
    source = reading.entry(block.get("source"), at)
    return source, reading.text(source.get("type"), f"{at}.type"), at


def _document_content(
    value: object, path: str, asks: list[Ask], mark: CacheMark | None
) -> tuple[Part, ...]:
    """A document that is given as text or as blocks."""
    if isinstance(value, str):
        return (Text(value, mark),) if value else ()
    parts: list[Part] = []
    for at, block in enumerate(reading.entries(value, path)):
        here = f"{path}[{at}]"
        if block.get("type") == "image":
            parts += decode_image(block, here, asks)
        else:
            parts.append(Text(reading.text(block.get("text"), f"{here}.text")))
    return tuple(parts)


_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
# Coding clients begin with a text that is for the vendor's books, another one in each call: behind
# it no other vendor would find anything in its cache.
_BILLING = "x-anthropic-billing-header:"
_HOSTED_ENDS = ("server_tool_use", "_tool_result", "mcp_tool_use", "container_upload")


def decode_system(value: object, asks: list[Ask]) -> tuple[Text, ...]:
    """The field ``system``, a string or text blocks."""
    if isinstance(value, str):
        return (Text(value),) if value else ()
    texts: list[Text] = []
    for at, block in enumerate(reading.entries(value, "system")):
        text = _text(block, f"system[{at}]", asks)
        if text.text.startswith(_BILLING):
            asks.append(Ask("other", f"system[{at}]"))
        else:
            texts.append(text)
    return tuple(texts)


def turn_steps(spans: Spans, asks: list[Ask]) -> Steps[tuple[tuple[Part, ...], tuple[Turn, ...]]]:
    """The system texts before the first turn, and the turns, in steps."""
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
    """Results come first in a turn of the user."""
    if role == "user":
        parts.sort(key=lambda part: not isinstance(part, ToolResult))
    return Turn(role, tuple(parts))


def _message(value: object, path: str, asks: list[Ask]) -> tuple[Role, list[Part]]:
    message = reading.entry(value, path)
    role = _ROLES.get(reading.text(message.get("role"), f"{path}.role"))
    if role is None:
        raise wrong_value(f"{path}.role", "expected user, assistant or system")
    content = message.get("content")
    path = f"{path}.content"
    if isinstance(content, str):
        return role, [Text(content)] if content else []
    if content is None:
        raise Fault(Condition.FIELD_MISSING, param=path)
    parts: list[Part] = []
    for at, block in enumerate(reading.entries(content, path)):
        parts += _block(block, role, f"{path}[{at}]", asks)
    return role, parts


def _block(
    block: dict[str, Any], role: Role, path: str, asks: list[Ask]
) -> tuple[Part, ...] | list[Part]:
    kind = reading.text(block.get("type"), f"{path}.type")
    decode = _OF_ROLE[role].get(kind)
    if decode is not None:
        return decode(block, path, asks)
    if kind != "tool_result" and kind.endswith(_HOSTED_ENDS):
        asks.append(Ask("file_ref" if kind == "container_upload" else "hosted_history", path))
        return (Hosted(kind, block, path),)
    kinds = ", ".join(_OF_ROLE[role])
    raise wrong_value(f"{path}.type", f"expected one of {kinds} for the role {role}")


def _text(block: dict[str, Any], path: str, asks: list[Ask]) -> Text:
    kind = reading.text(block.get("type"), f"{path}.type")
    if kind != "text":
        raise wrong_value(f"{path}.type", "expected text")
    return Text(
        reading.text(block.get("text"), f"{path}.text"),
        decode_mark(block, path, asks),
        decode_citations(block.get("citations")),
    )


def _text_parts(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    text = _text(block, path, asks)
    return (text,) if text.text else ()


def _thinking(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    thought = reading.optional_text(block.get("thinking"), f"{path}.thinking")
    signature = reading.optional_text(block.get("signature"), f"{path}.signature")
    return (Reasoning(thought, opaque=signature),)


def _redacted(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    return (Reasoning("", opaque=reading.text(block.get("data"), f"{path}.data")),)


def _call(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    return (
        ToolCall(
            given_id(reading.text(block.get("id"), f"{path}.id")),
            reading.text(block.get("name"), f"{path}.name"),
            compact(reading.entry(block.get("input"), f"{path}.input")),
            cache=decode_mark(block, path, asks),
        ),
    )


def _result(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    content = block.get("content")
    parts: list[Any] = []
    if isinstance(content, str):
        parts = [Text(content)] if content else []
    else:
        for at, each in enumerate(reading.entries(content, f"{path}.content")):
            parts += _result_part(each, f"{path}.content[{at}]", asks)
    return (
        ToolResult(
            given_id(reading.text(block.get("tool_use_id"), f"{path}.tool_use_id")),
            tuple(parts),
            error=bool(reading.optional_flag(block.get("is_error"), f"{path}.is_error")),
            cache=decode_mark(block, path, asks),
        ),
    )


def _result_part(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    kind = reading.text(block.get("type"), f"{path}.type")
    decode = _IN_RESULT.get(kind)
    if decode is None:
        raise wrong_value(f"{path}.type", f"expected one of {', '.join(_IN_RESULT)}")
    return decode(block, path, asks)


def _tool_reference(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """What a search for tools has found, by its name."""
    return (Text(reading.text(block.get("tool_name"), f"{path}.tool_name")),)


def _compaction(block: dict[str, Any], path: str, asks: list[Ask]) -> tuple[Part, ...]:
    """The summary of what stood before; without it the conversation would have no beginning."""
    summary = reading.optional_text(block.get("content"), f"{path}.content")
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

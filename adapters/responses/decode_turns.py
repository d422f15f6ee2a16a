"""Decoding of the items of a client's ``input``, and of their content, as turns of ``adapters.ir``.

Items are smaller than turns: messages, calls, results and reasoning each are an item.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from adapters.family.base64_data import split_data_url, standard_base64, text_of
from adapters.family.opaque import summary_of
from adapters.family.reading import optional, required, string
from adapters.faults import wrong_type, wrong_value
from adapters.ir.parts import (
    CacheMark,
    Citation,
    Hosted,
    Media,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from adapters.ir.request import TOOL_SEARCH, Ask
from adapters.json.jsonio import compact
from adapters.responses.decode_answer import read_citation
from adapters.responses.reasoning_state import COMPACTION_TRIGGER, COMPACTIONS, SUMMARY_TITLE

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})
_SEARCHES = frozenset({"tool_search_call", "tool_search_output"})  # for tools, by the client
# Items for state that only the vendor has, and without which the rest has another meaning.
_STORED = frozenset({*COMPACTIONS, "item_reference"})
_BARE = frozenset({"type", "id", "status"})  # the vendor fills in everything else of an item
# Completed items of tools that the vendor runs or knows.
_HOSTED = frozenset(
    {
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("computer_call", "computer_call_output", "local_shell_call", "local_shell_call_output"),
        *("shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output"),
        *("mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"),
        *_SEARCHES,
    }
)
_REASONING_IDS = "rs_"
_ENCRYPTED = re.compile(r"gAAAA[\w=-]+")  # as OpenAI writes it


@dataclass(slots=True)
class _Draft:
    """A turn under construction."""

    role: Role
    parts: list[Part] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)  # id of a call -> its order
    answers: "_Draft | None" = None  # the user's turn after an assistant's
    late: bool = False  # ``answers`` came after other turns, and is not in the list of turns

    def turn(self, order: dict[str, int]) -> Turn:
        """Return the turn, with its results first and in the order of their calls."""
        last = len(order)
        results = sorted(self.results, key=lambda result: order.get(result.call_id, last))
        return Turn(self.role, (*results, *self.parts))


class TurnBuilder:
    """A builder of turns from items. Neighbours of one role form one turn. A result goes into the
    user's turn after its call, wherever it came."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.system: list[Part] = []  # texts before the first turn
        self.compacts = False  # a summary is requested
        self.added_tools: list[tuple[object, str]] = []  # added by items, each with its path
        self._drafts: list[_Draft] = []
        self._caller: dict[str, _Draft] = {}  # turn of each call id

    def add(self, item: object, path: str) -> None:
        """Add the next item. Raises Fault INVALID_FIELD, FIELD_MISSING with its path."""
        if not isinstance(item, dict):
            raise wrong_type(path, "expected an object")
        kind = string(item, "type", path) or "message"
        if kind == "message":
            self._add_message(item, path)
        elif kind in _CALLS:
            self._add_call(item, kind, path)
        elif kind in _RESULTS:
            self._add_result(item, kind, path)
        elif kind == "reasoning":
            self._last("assistant").parts.append(_reasoning(item, path))
        elif kind == "item_reference" and required(item, "id", path, str).startswith(
            _REASONING_IDS
        ):
            # Reasoning helps the model, but the turns mean the same without it. The AI SDK always
            # sends such references unless it is configured not to store.
            self.asks.append(Ask("other", path))
        elif kind in _SEARCHES and item.get("execution") == "client" and item.get("call_id"):
            self._add_search(item, kind, path)
        elif kind in _HOSTED:
            self._add_hosted(item, kind, path)
        elif kind in COMPACTIONS and (summary := summary_of(item.get("encrypted_content"))):
            self._last("user").parts.append(Text(SUMMARY_TITLE + summary))
        elif kind == COMPACTION_TRIGGER:
            self.compacts = True
        elif kind in _STORED or item.keys() <= _BARE:
            self.asks.append(Ask("stored_state", path))
        elif kind == "additional_tools":
            self.added_tools.append((item.get("tools"), f"{path}.tools"))
        elif kind == "agent_message":
            self._add_agent_message(item, path)
        else:
            self.asks.append(Ask("other", path))

    def turns(self) -> tuple[Turn, ...]:
        """Return all turns in order."""
        turns: list[Turn] = []
        order: dict[str, int] = {}
        for draft in self._drafts:
            turns.append(draft.turn(order))
            order = draft.calls
            if draft.late and draft.answers is not None:
                turns.append(draft.answers.turn(order))
        turns = [turn for turn in turns if turn.parts]
        if turns and turns[-1].role == "assistant":
            self.asks.append(Ask("prefill", "input"))
        return tuple(turns)

    def _add_message(self, item: dict[str, Any], path: str) -> None:
        name = required(item, "role", path, str)
        role = _ROLES.get(name)
        if role is None:
            raise wrong_value(f"{path}.role", f"'{name[:40]}' is not known here")
        parts = decode_content(item.get("content"), f"{path}.content", self.asks)
        if role != "system":
            self._last(role).parts.extend(parts)
        elif self._drafts:
            self.asks.append(Ask("system_turn", path))
            draft = _Draft("system")
            draft.parts.extend(parts)
            self._drafts.append(draft)
        else:
            self.system.extend(parts)

    def _add_call(self, item: dict[str, Any], kind: str, path: str) -> None:
        call = ToolCall(
            required(item, "call_id", path, str),
            required(item, "name", path, str),
            required(item, _CALLS[kind], path, str),
            custom=kind == "custom_tool_call",
            namespace=string(item, "namespace", path),
        )
        self._call(call)

    def _call(self, call: ToolCall) -> None:
        draft = self._last("assistant")
        draft.calls.setdefault(call.id, len(draft.calls))
        self._caller[call.id] = draft
        draft.parts.append(call)

    def _add_result(self, item: dict[str, Any], kind: str, path: str) -> None:
        call_id = required(item, "call_id", path, str)
        output = decode_content(item.get("output"), f"{path}.output", self.asks)
        result = ToolResult(
            call_id, as_result_parts(output), custom=kind == "custom_tool_call_output"
        )
        self._behind(self._caller.get(call_id)).results.append(result)

    def _add_search(self, item: dict[str, Any], kind: str, path: str) -> None:
        """Add a search for tools that the client ran, and the tools that it found."""
        call_id = required(item, "call_id", path, str)
        if kind == "tool_search_call":
            sent = item.get("arguments")
            arguments = sent if isinstance(sent, str) else compact(sent or {})
            self._call(ToolCall(call_id, TOOL_SEARCH, arguments))
            return
        tools = item.get("tools")
        self.added_tools.append((tools, f"{path}.tools"))
        text = compact({"tools": _names_of(tools)})
        self._behind(self._caller.get(call_id)).results.append(ToolResult(call_id, (Text(text),)))

    def _add_agent_message(self, item: dict[str, Any], path: str) -> None:
        """Add a message from one Codex agent to another. It is plain text unless OpenAI encrypted
        it, even if the field's name says otherwise."""
        content = item.get("content")
        parts = content if isinstance(content, list) else [{"text": content}] if content else []
        texts = [_agent_text(part) for part in parts]
        if not all(texts):
            self.asks.append(Ask("other", f"{path}.content"))
        if any(texts):
            title = f"Message from {item.get('author')} to {item.get('recipient')}:"
            self._last("user").parts.append(Text("\n".join((title, *filter(None, texts)))))

    def _add_hosted(self, item: dict[str, Any], kind: str, path: str) -> None:
        """Add an item of a tool that the vendor runs, which is useless to another vendor."""
        self.asks.append(Ask("hosted_history", path))
        of_user = kind.endswith(("_output", "_response"))
        self._last("user" if of_user else "assistant").parts.append(Hosted(kind, item, path))

    def _last(self, role: Role) -> _Draft:
        before = self._drafts[-1] if self._drafts else None
        if before is not None and before.role == role:
            return before
        draft = _Draft(role)
        self._drafts.append(draft)
        if role == "user" and before is not None and before.role == "assistant":
            before.answers = draft
        return draft

    def _behind(self, caller: _Draft | None) -> _Draft:
        """Return the user's turn for the results of a turn's calls."""
        if caller is None or caller is self._drafts[-1]:
            return self._last("user")
        if caller.answers is None:
            caller.answers, caller.late = _Draft("user"), True
        return caller.answers


def _agent_text(part: object) -> str:
    """Return the text of a part of an agent's message; empty if it is unreadable."""
    if not isinstance(part, dict):
        return ""
    text = part.get("text") or part.get("encrypted_content")
    return text if isinstance(text, str) and _ENCRYPTED.fullmatch(text) is None else ""


def _names_of(tools: object) -> list[str]:
    """Return the names of tools as they are sent, with their namespace if they have one."""
    names: list[str] = []
    for tool in tools if isinstance(tools, list) else ():
        inner = tool.get("tools") if isinstance(tool, dict) else None
        if isinstance(inner, list):
            names += [f"{tool.get('name')}__{name}" for name in _names_of(inner)]
        elif isinstance(tool, dict):
            names.append(str(tool.get("name")))
    return names


def _reasoning(item: dict[str, Any], path: str) -> Reasoning:
    opaque = string(item, "encrypted_content", path)
    summary = _texts(item.get("summary"), f"{path}.summary")
    text = summary or _texts(item.get("content"), f"{path}.content")
    return Reasoning(text, summary=bool(summary), opaque=opaque)


def _texts(parts: object, path: str) -> str:
    texts = [part.text for part in decode_content(parts, path, []) if isinstance(part, Text)]
    return "\n\n".join(texts)


_TEXT_TYPES = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_TTL_S = {"30m": 1800, "12h": 43200}
_TEXT_MIMES = frozenset({"application/json", "application/xml", "application/x-yaml"})
_PDF = "application/pdf"
_BYTES = "application/octet-stream"  # some clients send it for every file
_OFFICE = "application/vnd.openxmlformats-officedocument"
_MIME_OF_ENDING = {
    "pdf": _PDF,
    "json": "application/json",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
    "docx": f"{_OFFICE}.wordprocessingml.document",
    "xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    "pptx": f"{_OFFICE}.presentationml.presentation",
    **dict.fromkeys(("txt", "log", "py", "js", "ts", "yaml", "yml", "xml"), "text/plain"),
}
_MIME_OF_SOUND = {"wav": "audio/wav", "mp3": "audio/mpeg"}

ContentPart = Text | Refusal | Media


def decode_content(content: object, path: str, asks: list[Ask]) -> tuple[ContentPart, ...]:
    """Decode the parts of a ``content`` or ``output`` field, a string or an array, and add their
    asks to ``asks``. Raises Fault INVALID_FIELD, FIELD_MISSING with the part's path."""
    if isinstance(content, str):
        return (Text(content),)
    if content is None:
        return ()
    if not isinstance(content, list):
        raise wrong_type(path, "expected a string or an array")
    return tuple(_part(part, f"{path}[{i}]", asks) for i, part in enumerate(content))


def as_result_parts(parts: tuple[ContentPart, ...]) -> tuple[Text | Media, ...]:
    """Return the parts of a tool's result, with refusals as text."""
    return tuple(Text(part.text) if isinstance(part, Refusal) else part for part in parts)


def _part(part: object, path: str, asks: list[Ask]) -> ContentPart:
    if not isinstance(part, dict):
        raise wrong_type(path, "expected an object")
    kind = required(part, "type", path, str)
    if kind in _TEXT_TYPES:
        text = required(part, "text", path, str)
        return Text(text, _cache_mark(part, path, asks), _citations(part.get("annotations")))
    if kind == "refusal":
        return Refusal(required(part, "refusal", path, str))
    if kind == "input_image":
        return _image(part, path, asks)
    if kind == "input_file":
        return _file(part, path, asks)
    if kind == "input_audio":
        return _audio(part, path, asks)
    raise wrong_value(f"{path}.type", f"'{kind[:40]}' is not known here")


def _image(part: dict[str, Any], path: str, asks: list[Ask]) -> Media:
    detail = string(part, "detail", path)
    if detail == "auto":  # the vendors' default
        detail = ""
    if detail:
        asks.append(Ask("image_detail", f"{path}.detail"))
    cache = _cache_mark(part, path, asks)
    if ref := string(part, "file_id", path):
        asks.append(Ask("file_ref", f"{path}.file_id"))
        return Media("image", ref=ref, detail=detail, cache=cache, path=path)
    url = required(part, "image_url", path, str)
    inline = split_data_url(url, f"{path}.image_url")
    asks.append(Ask("image_data" if inline else "image_url", path))
    if inline is None:
        return Media("image", url=url, detail=detail, cache=cache, path=path)
    mime, data = inline
    return Media("image", mime or "image/png", data, detail=detail, cache=cache, path=path)


def _file(part: dict[str, Any], path: str, asks: list[Ask]) -> Media:
    name = string(part, "filename", path)
    cache = _cache_mark(part, path, asks)
    if ref := string(part, "file_id", path):
        asks.append(Ask("file_ref", f"{path}.file_id"))
        return Media("file", ref=ref, name=name, cache=cache, path=path)
    if url := string(part, "file_url", path):
        asks.append(Ask("document_url", path))
        mime = _mime_of(url.partition("?")[0])
        return Media(
            "file",
            _mime_of(name) if mime == _BYTES else mime,
            url=url,
            name=name,
            cache=cache,
            path=path,
        )
    sent = required(part, "file_data", path, str)
    place = f"{path}.file_data"
    mime, data = split_data_url(sent, place) or ("", standard_base64(sent, place))
    mime = _mime_of(name) if mime in ("", _BYTES) else mime
    if mime.startswith("text/") or mime in _TEXT_MIMES:
        asks.append(Ask("text_document", path))
        text = text_of(data, place)
        return Media("file", "text/plain", text, name=name, plain=True, cache=cache, path=path)
    asks.append(Ask("document_data", path))
    return Media("file", mime, data, name=name, cache=cache, path=path)


def _mime_of(name: str) -> str:
    """Return the MIME type for a file name; a file without an ending is probably a PDF."""
    _, dot, ending = name.rpartition("/")[2].rpartition(".")
    return _MIME_OF_ENDING.get(ending.lower(), _BYTES) if dot else _PDF


def _audio(part: dict[str, Any], path: str, asks: list[Ask]) -> Media:
    asks.append(Ask("audio", path))
    holder, place = part.get("input_audio"), f"{path}.input_audio"
    if not isinstance(holder, dict):
        raise wrong_type(place, "expected an object")
    data = standard_base64(required(holder, "data", place, str), f"{place}.data")
    form = required(holder, "format", place, str)
    return Media("audio", _MIME_OF_SOUND.get(form, f"audio/{form}"), data, path=path)


def _cache_mark(part: dict[str, Any], path: str, asks: list[Ask]) -> CacheMark | None:
    mark = optional(part, "prompt_cache_breakpoint", path, dict)
    if mark is None:
        return None
    place = f"{path}.prompt_cache_breakpoint"
    asks.append(Ask("cache_mark", place))
    return CacheMark(_TTL_S.get(string(mark, "ttl", place)))


def _citations(annotations: object) -> tuple[Citation, ...]:
    if not isinstance(annotations, list):
        return ()
    return tuple(citation for citation in map(read_citation, annotations) if citation is not None)

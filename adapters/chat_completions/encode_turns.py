"""Encoding of turns as messages for an upstream of the chat completions family, and of tool names.

The results of a turn's calls follow immediately, each as a message with text only; media of results
go into the user's message after them. A call without a result gets one, and a result without a call
becomes the user's text, because upstreams refuse both. Tool names have at most 64 letters, digits,
``_`` and ``-``, and no groups; others are renamed, and mapped back in the answer.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from adapters.chat_completions.reasoning_details import FIELD as DETAILS
from adapters.chat_completions.reasoning_details import Details, add_details, details_of
from adapters.family.base64_data import text_of
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.ir.parts import Media, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Request, Tool
from adapters.json.jsonio import compact
from adapters.json.structure import Steps
from adapters.openai import digest_of, fit_name, hashed_name


class ChatToolNames:
    """The tools of a request under the names sent to the upstream."""

    def __init__(self, request: Request, traits: Traits) -> None:
        self.renamed: dict[str, Tool] = {}  # see ``Encoded.names``
        self._customs = traits.custom_tools
        self._tools_by_name: dict[str, tuple[str, str]] = {}
        self._sent: dict[tuple[str, str], str] = {}
        self._named: dict[str, list[Tool]] = {}
        self.tools = tuple(tool for tool in request.tools if tool.kind != "hosted")
        for tool in self.tools:
            self._add(tool)

    def of(self, name: str, namespace: str = "") -> str:
        """Return the name that is sent for a tool, even if only the history has the tool."""
        return self._sent.get((namespace, name)) or fit_name(_full(name, namespace))

    def is_native(self, custom: bool) -> bool:
        """Return true if a tool is sent as it is, not as a function with one field."""
        return not custom or self._customs

    def named(self, name: str) -> list[Tool]:
        """Return the tools that a tool choice means by a name."""
        return self._named.get(name, [])

    def free(self, name: str) -> str:
        """Return a name that no tool uses."""
        used = self._tools_by_name
        return fit_name(f"{name} {len(used)}") if name in used else name

    def _add(self, tool: Tool) -> None:
        for name in {tool.name, _full(tool.name, tool.namespace), tool.namespace}:
            self._named.setdefault(name, []).append(tool)
        key = (tool.namespace, tool.name)
        sent = fit_name(_full(tool.name, tool.namespace))
        if self._tools_by_name.setdefault(sent, key) != key:
            sent = hashed_name(f"{tool.namespace} {tool.name}")
            self._tools_by_name[sent] = key
        self._sent[key] = sent
        if sent != tool.name or tool.namespace or not self.is_native(tool.kind == "custom"):
            self.renamed[sent] = tool


def _full(name: str, namespace: str) -> str:
    return f"{namespace}__{name}" if namespace else name


NO_RESULT = "no result provided"
ERROR = "Error: "

_AUDIO_FORMATS = {
    **dict.fromkeys(("audio/mpeg", "audio/mp3", "audio/mpga"), "mp3"),
    **dict.fromkeys(("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"), "wav"),
}
_DETAILS = ("low", "high", "original")

Message = dict[str, Any]


def encode_turns(request: Request, traits: Traits, names: ChatToolNames) -> Steps[list[Message]]:
    """Encode all messages, with a step for each turn. Raises UNSUPPORTED with the client's path."""
    writer = _Writer(traits, names)
    if request.system:
        writer.add_system(request.system)
    turns = request.turns
    for index, turn in enumerate(turns):
        if turn.role == "system":
            writer.add_system(turn.parts)
        elif turn.role == "user":
            writer.add_user(turn.parts)
        else:
            writer.add_assistant(turn.parts, _following(turns, index), f"{index}")
        yield False
    return writer.messages


def _following(turns: Sequence[Turn], index: int) -> Turn | None:
    """Return the next turn of the user or the assistant; None if there is none."""
    places = range(index + 1, len(turns))
    return next((turns[at] for at in places if turns[at].role != "system"), None)


class _Writer:
    def __init__(self, traits: Traits, names: ChatToolNames) -> None:
        self.messages: list[Message] = []
        self._traits = traits
        self._names = names
        self._answered: set[int] = set()  # results that were written after their calls

    def add_system(self, parts: Iterable[Part]) -> None:
        """Add a system message with one text."""
        texts = [part.text for part in parts if isinstance(part, Text) and part.text]
        if texts:
            role = self._traits.system_role
            self.messages.append({"role": role, "content": "\n\n".join(texts)})

    def add_assistant(self, parts: Sequence[Part], following: Turn | None, turn: str) -> None:
        """Add an assistant message, and the results of its calls from the following turn."""
        texts = [part.text for part in parts if isinstance(part, Text)]
        refusals = [part.text for part in parts if isinstance(part, Refusal)]
        calls = [part for part in parts if isinstance(part, ToolCall)]
        if not (texts or refusals or calls):
            return
        message: Message = {"role": "assistant", "content": "".join(texts)}
        if not texts and (refusals or calls):
            message["content"] = None
        if refusals:
            message["refusal"] = "".join(refusals)
        details: Details = []
        for part in parts:
            if isinstance(part, Reasoning):
                add_details(details, details_of(part.opaque))
        if details:
            message[DETAILS] = details
        thoughts = [part.text for part in parts if isinstance(part, Reasoning) and part.text]
        # Together with calls, such models require the field even without any reasoning.
        if self._traits.reasoning_echo and (thoughts or calls):
            message["reasoning_content"] = "\n\n".join(thoughts)
        if self._traits.thinking_parts and thoughts:
            thinking = {"type": "thinking", "thinking": [_text(text) for text in thoughts]}
            message["content"] = [thinking, *([_text("".join(texts))] if texts else [])]
        if calls:
            ids = _ids(calls, turn)
            if self._traits.call_ids == "nine":
                ids = [_nine(call_id) for call_id in ids]
            message["tool_calls"] = self._calls(parts, iter(ids))
        self.messages.append(message)
        if calls:
            self._add_results(calls, ids, following.parts if following else ())

    def add_user(self, parts: Sequence[Part]) -> None:
        """Add a user message with everything except results, and the parts that results cannot
        hold."""
        content: list[Message] = []
        for part in parts:
            if isinstance(part, ToolResult):
                content += self._beside(part)
            elif isinstance(part, Text | Media):
                content.append(self._content(part))
        filled = [part for part in content if part.get("text") != ""]
        plain = all(part["type"] == "text" for part in filled)
        # For text alone, many servers accept only a string.
        if filled and plain and (len(filled) == 1 or not self._traits.openai_extras):
            text = "\n\n".join(part["text"] for part in filled)
            self.messages.append({"role": "user", "content": text})
        elif filled:
            self.messages.append({"role": "user", "content": filled})
        elif not any(isinstance(part, ToolResult) for part in parts):
            self.messages.append({"role": "user", "content": ""})

    def _calls(self, parts: Sequence[Part], ids: Iterable[str]) -> list[Message]:
        written = []
        signature = ""
        following = iter(ids)
        for part in parts:
            if isinstance(part, Reasoning) and part.opaque and not details_of(part.opaque):
                signature = part.opaque
            elif isinstance(part, ToolCall):
                call = self._call(part, next(following))
                if signature:
                    call["extra_content"] = {"google": {"thought_signature": signature}}
                    signature = ""
                written.append(call)
        return written

    def _call(self, call: ToolCall, call_id: str) -> Message:
        name = self._names.of(call.name, call.namespace)
        if not call.custom:
            function = {"name": name, "arguments": call.arguments.strip() or "{}"}
            return {"id": call_id, "type": "function", "function": function}
        if self._names.is_native(True):
            custom = {"name": name, "input": call.arguments}
            return {"id": call_id, "type": "custom", "custom": custom}
        arguments = compact({"input": call.arguments})
        function = {"name": name, "arguments": arguments}
        return {"id": call_id, "type": "function", "function": function}

    def _add_results(self, calls: list[ToolCall], ids: list[str], parts: Sequence[Part]) -> None:
        results: dict[str, list[ToolResult]] = {}  # by the call's id, in reverse order
        for part in reversed(parts):
            if isinstance(part, ToolResult) and id(part) not in self._answered:
                results.setdefault(part.call_id, []).append(part)
        for call, call_id in zip(calls, ids, strict=True):
            text = NO_RESULT
            if left := results.get(call.id):
                result = left.pop()
                self._answered.add(id(result))
                text = _result_text(result)
            self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def _beside(self, result: ToolResult) -> list[Message]:
        """Return the content of a result that goes into the user's message."""
        media = [part for part in result.parts if isinstance(part, Media) and not part.plain]
        attached = [self._content(part) for part in media]
        name = result.call_id or result.name
        if id(result) not in self._answered:
            text = f"Result of the tool call {name}:\n{_result_text(result)}"
            return [_text(text), *attached]
        title = _text(f"Attached to the result of the tool call {name}:")
        return [title, *attached] if attached else []

    def _content(self, part: Text | Media) -> Message:
        if isinstance(part, Text):
            return _text(part.text)
        if part.kind == "image" and (part.data or part.url) and self._traits.images:
            return _image(part)
        if part.kind == "audio" and part.data and self._traits.audio:
            return _audio(part)
        if part.kind == "file" and part.plain:
            return _text(_document(part))
        if part.kind == "file" and part.data:
            if part.mime.startswith("text/"):
                return _text(text_of(part.data, part.path))
            if self._traits.documents:
                return _file(part)
        raise Fault(Condition.UNSUPPORTED, param=part.path or None)


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


def _image(part: Media) -> Message:
    url = part.url or f"data:{part.mime or 'image/png'};base64,{part.data}"
    image = {"url": url}
    if part.detail in _DETAILS:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}


def _audio(part: Media) -> Message:
    form = _AUDIO_FORMATS.get(part.mime.partition(";")[0])
    if form is None:
        raise Fault(Condition.UNSUPPORTED, param=part.path or None)
    return {"type": "input_audio", "input_audio": {"data": part.data, "format": form}}


def _file(part: Media) -> Message:
    mime = part.mime or "application/pdf"
    ending = "pdf" if mime == "application/pdf" else mime.rpartition("/")[2]
    name = part.name or f"document.{ending}"
    return {
        "type": "file",
        "file": {"filename": name, "file_data": f"data:{mime};base64,{part.data}"},
    }


def _document(part: Media) -> str:
    return f"{part.name}:\n\n{part.data}" if part.name else part.data


def _result_text(result: ToolResult) -> str:
    texts = [
        part.text if isinstance(part, Text) else _document(part) if part.plain else _note(part)
        for part in result.parts
    ]
    text = "\n".join(texts)
    return ERROR + text if result.error and not text.startswith(ERROR) else text


def _note(part: Media) -> str:
    return f"[{part.kind}: see the next user message]"


_NINE = re.compile(r"[a-zA-Z0-9]{9}")


def _nine(call_id: str) -> str:
    """Return nine letters and digits for an id, always the same for the same id."""
    return call_id if _NINE.fullmatch(call_id) else digest_of(call_id)[:9]


def _ids(calls: list[ToolCall], turn: str) -> list[str]:
    """Return distinct ids for the calls of a turn. Missing ones are derived from the position, so
    that they never change."""
    ids: dict[str, None] = {}  # in order
    upstream_ids = {call.id for call in calls}
    for index, call in enumerate(calls):
        name = call.id
        if not name or name in ids:
            name = f"call_{turn}_{index}"
            while name in upstream_ids:
                name += "_"
        ids[name] = None
    return list(ids)

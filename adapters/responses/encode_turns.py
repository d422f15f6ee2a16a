"""Encoding of turns as the items of an upstream's ``input``, and of tool names in them."""

from typing import Any

from adapters.family.base64_data import base64_of
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.ir.parts import Media, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Tool
from adapters.json.jsonio import compact
from adapters.openai import digest_of, fit_name
from adapters.responses.reasoning_state import unseal

MAX_ID_CHARS = 64


class ResponsesToolNames:
    """The tools of a request under the names sent to the upstream. ``customs``: the upstream has
    free-text tools. ``renamed``: names that differ -> the client's tools."""

    def __init__(self, tools: tuple[Tool, ...], *, customs: bool = True) -> None:
        self.customs = customs
        self.renamed: dict[str, Tool] = {}
        for tool in tools:
            if tool.kind == "hosted":
                continue
            sent = fit_name(tool.name)
            if sent != tool.name or (tool.kind == "custom" and not customs):
                self.renamed[sent] = tool


def call_id(name: str) -> str:
    """Return the id of a call and of its result, shortened to what upstreams accept."""
    return name if 0 < len(name) <= MAX_ID_CHARS else f"call_{digest_of(name)[:32]}"


NO_RESULT = "The tool gave no result."
_SOUND_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}

Json = dict[str, Any]


class InputItems:
    """A builder of the items of a conversation, turn by turn."""

    def __init__(self, names: ResponsesToolNames, traits: Traits) -> None:
        self.items: list[Json] = []
        self._names = names
        self._traits = traits
        self._content: list[Json] | None = None  # of the last item, if that is a message
        self._open_calls: dict[str, ToolCall] = {}  # calls without a result so far

    def add(self, turn: Turn) -> None:
        """Add the next turn. Raises Fault UNSUPPORTED for parts that items cannot carry."""
        self._content = None
        for part in turn.parts:
            if isinstance(part, ToolResult):
                self._add_result(part)
        if turn.role != "system":  # it may be between calls and results
            self._answer_open_calls()
        role = self._traits.system_role if turn.role == "system" else turn.role
        for part in turn.parts:
            if not isinstance(part, ToolResult):
                self._add_part(part, role)

    def end(self) -> None:
        """Add results to calls without any, which upstreams refuse, and turn the assistant's
        messages into plain text: strict servers (vLLM) accept their parts only with the vendor's
        ids."""
        self._answer_open_calls()
        for item in self.items:
            if item.get("role") == "assistant" and not _has_refusal(item["content"]):
                item["content"] = "".join(part["text"] for part in item["content"])

    def _add_part(self, part: Part, role: str) -> None:
        if isinstance(part, ToolCall):
            self._open_calls[part.id] = part
            self._push(self._call(part))
        elif isinstance(part, Reasoning):
            item = unseal(part.opaque, part.text)
            if item is not None:  # a model that rejects the state also gets no text of it
                self._push(item)
        elif isinstance(part, Text | Refusal | Media):
            encoded = self._content_part(part, role)
            if encoded is not None:
                self._say(role, encoded)

    def _push(self, item: Json) -> None:
        self._content = None
        self.items.append(item)

    def _say(self, role: str, part: Json) -> None:
        if self._content is None:
            content: list[Json] = []
            self._push({"type": "message", "role": role, "content": content})
            self._content = content
        self._content.append(part)

    def _call(self, part: ToolCall) -> Json:
        custom = self._is_custom(part)
        item: Json = {
            "type": "custom_tool_call" if custom else "function_call",
            "call_id": call_id(part.id),
            "name": fit_name(part.name),
        }
        if custom:
            item["input"] = part.arguments
        elif part.custom:  # a function stands for the tool, see ``encode_tools``
            item["arguments"] = compact({"input": part.arguments})
        else:
            item["arguments"] = part.arguments or "{}"
        return {**item, "namespace": part.namespace} if part.namespace else item

    def _is_custom(self, call: ToolCall) -> bool:
        return call.custom and self._names.customs

    def _add_result(self, result: ToolResult) -> None:
        call = self._open_calls.pop(result.call_id, None)
        output = _output(result, self._traits)
        if call is not None:
            self._push(self._result_item(call, output))
            return
        # Upstreams refuse a result without its call, so it becomes text.
        parts = [{"type": "input_text", "text": output}] if isinstance(output, str) else output
        for part in parts:
            self._say("user", part)

    def _result_item(self, call: ToolCall, output: str | list[Json]) -> Json:
        custom = self._is_custom(call)
        return {
            "type": "custom_tool_call_output" if custom else "function_call_output",
            "call_id": call_id(call.id),
            "output": output,
        }

    def _answer_open_calls(self) -> None:
        calls, self._open_calls = self._open_calls, {}
        for call in calls.values():
            self._push(self._result_item(call, NO_RESULT))

    def _content_part(self, part: Text | Refusal | Media, role: str) -> Json | None:
        if isinstance(part, Media):
            if role != "user":
                raise Fault(Condition.UNSUPPORTED, param=part.path or "input")
            return _media(part, self._traits)
        if not part.text:
            return None
        if isinstance(part, Refusal) and role == "assistant" and self._traits.openai_extras:
            return {"type": "refusal", "refusal": part.text}
        return {"type": "output_text" if role == "assistant" else "input_text", "text": part.text}


def _has_refusal(content: list[Json]) -> bool:
    return any(part["type"] == "refusal" for part in content)


def _output(result: ToolResult, traits: Traits) -> str | list[Json]:
    """Encode the result of a tool: one text, or parts if it has more than text."""
    failed = "Error: " if result.error else ""
    if all(isinstance(part, Text) for part in result.parts):
        texts = [part.text for part in result.parts if isinstance(part, Text)]
        return failed + "\n".join(texts)
    parts: list[Json] = [{"type": "input_text", "text": failed.strip()}] if failed else []
    for part in result.parts:
        if isinstance(part, Media):
            parts.append(_media(part, traits))
        elif part.text:
            parts.append({"type": "input_text", "text": part.text})
    return parts


def _media(part: Media, traits: Traits) -> Json:
    if part.ref or part.kind == "video":
        raise Fault(Condition.UNSUPPORTED, param=part.path or "input")
    if part.kind == "image":
        url = part.url or f"data:{part.mime};base64,{part.data}"
        image = {"type": "input_image", "image_url": url}
        return {**image, "detail": part.detail} if part.detail else image
    if part.kind == "audio":
        form = _SOUND_FORMATS.get(part.mime)
        if form is None or not part.data:
            raise Fault(Condition.UNSUPPORTED, param=part.path or "input")
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": form}}
    return _file(part, traits)


def _file(part: Media, traits: Traits) -> Json:
    if part.url:
        return {"type": "input_file", "file_url": part.url}
    if part.plain and not traits.documents:
        return {"type": "input_text", "text": part.data}
    data = base64_of(part.data) if part.plain else part.data
    name = part.name or ("document.txt" if part.plain else "document.pdf")
    url = f"data:{part.mime or 'application/pdf'};base64,{data}"
    return {"type": "input_file", "filename": name, "file_data": url}

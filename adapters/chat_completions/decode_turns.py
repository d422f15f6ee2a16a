"""Decoding of a client's messages and their content as system texts and turns of ``adapters.ir``.

The turns of ``adapters.ir`` alternate, and tool results come first in the user's turn; this family
has a message for each result. Function calls in the old form, from before tools, are read as calls
with generated ids. Data URLs become media with their base64, text files their text. Source: the
content types of the official OpenAI SDKs.
"""

from typing import Any

from adapters.chat_completions.reasoning_state import FIELD, ReasoningPieces, pieces_of_call
from adapters.family.base64_data import split_data_url, standard_base64, text_of
from adapters.family.reading import (
    field_path,
    nonempty,
    objects,
    one_of,
    optional,
    required,
    string,
)
from adapters.faults import Condition, Fault, wrong_type, wrong_value
from adapters.ir.parts import (
    CacheMark,
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
from adapters.ir.request import Ask, Feature
from adapters.json.structure import Steps

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_READ = frozenset(
    {
        *("role", "content", "refusal", "tool_calls", "function_call", "tool_call_id", "audio"),
        *("reasoning_content", "reasoning", FIELD),
    }
)


def decode_turns(
    messages: list[Any], asks: list[Ask]
) -> Steps[tuple[tuple[Part, ...], tuple[Turn, ...]]]:
    """Decode the system texts before the first turn, and the turns, with a step for each
    message."""
    conversation = _TurnBuilder(asks)
    for index, message in enumerate(messages):
        at = f"messages[{index}]"
        if not isinstance(message, dict):
            raise wrong_type(at, "expected an object")
        conversation.add(message, at)
        yield False
    if not messages:
        raise wrong_value("messages", "expected at least one message")
    return conversation.finished(len(messages) - 1)


class _TurnBuilder:
    def __init__(self, asks: list[Ask]) -> None:
        self._asks = asks
        self._system: list[Part] = []
        self._turns: list[tuple[Role, list[Part]]] = []
        self._calls: dict[str, ToolCall] = {}
        self._functions: dict[str, str] = {}  # last generated id of each function name

    def add(self, message: dict[str, Any], at: str) -> None:
        """Add the next message."""
        role = nonempty(message, "role", at)
        if role not in _ROLES:
            raise wrong_value(field_path(at, "role"), "expected one of " + ", ".join(_ROLES))
        if not message.keys() <= _READ:
            unread = [name for name, value in message.items() if value and name not in _READ]
            self._asks += [Ask("other", field_path(at, name)) for name in unread]
        if role in ("system", "developer"):
            self._add_system(message, at)
        elif role == "user":
            self._parts_of("user").extend(self._content(message, at))
        elif role == "assistant":
            self._parts_of("assistant").extend(self._assistant(message, at))
        else:
            self._add_result(message, at, role)

    def finished(self, last: int) -> tuple[tuple[Part, ...], tuple[Turn, ...]]:
        """Return all system texts and turns. ``last``: index of the last message."""
        role, parts = self._turns[-1] if self._turns else ("user", [])
        if role == "assistant" and not any(isinstance(part, ToolCall) for part in parts):
            self._asks.append(Ask("prefill", f"messages[{last}]"))
        order = {call_id: index for index, call_id in enumerate(self._calls)}
        turns = []
        for role, parts in self._turns:
            if role == "user" and any(isinstance(part, ToolResult) for part in parts):
                parts.sort(key=lambda part: _rank(part, order))
            turns.append(Turn(role, tuple(parts)))
        return tuple(self._system), tuple(turns)

    def _content(self, message: dict[str, Any], at: str) -> list[Part]:
        return decode_content(message.get("content"), field_path(at, "content"), self._asks)

    def _parts_of(self, role: Role) -> list[Part]:
        """Return the parts of the last turn, or of a new one if the last has another role."""
        if not self._turns or self._turns[-1][0] != role:
            self._turns.append((role, []))
        return self._turns[-1][1]

    def _add_system(self, message: dict[str, Any], at: str) -> None:
        parts = self._content(message, at)
        for index, part in enumerate(parts):
            if not isinstance(part, Text):
                raise wrong_value(f"{at}.content[{index}].type", "expected text")
        if self._turns:
            self._asks.append(Ask("system_turn", at))
            self._turns.append(("system", parts))
        else:
            self._system += parts

    def _assistant(self, message: dict[str, Any], at: str) -> list[Part]:
        calls = self._read_calls(message, at)
        thoughts = ReasoningPieces(_thought(message, at))
        # The first call's state precedes all text unless it is marked as late.
        first = pieces_of_call(calls[0][1]) if calls else ""
        parts: list[Part] = [*thoughts.read(first, late=False)]
        parts += thoughts.read(message.get(FIELD), late=False)
        carried = (message.get(FIELD), *(pieces_of_call(raw) for _, raw in calls))
        if not any(carried) and _thought(message, at):
            parts.append(Reasoning(_thought(message, at)))
        parts += self._content(message, at)
        if refusal := string(message, "refusal", at):
            parts.append(Refusal(refusal))
        if message.get("audio") is not None:
            self._asks.append(Ask("stored_state", field_path(at, "audio")))
        for call, raw in calls:
            parts += thoughts.read(pieces_of_call(raw))
            parts.append(call)
        return parts + thoughts.read(message.get(FIELD))

    def _read_calls(
        self, message: dict[str, Any], at: str
    ) -> list[tuple[ToolCall, dict[str, Any]]]:
        calls = []
        for raw, path in objects(message, "tool_calls", at):
            call = self._call(raw, path)
            if call.id in self._calls:
                # An earlier call has the same id; the results between the two tell them apart.
                del self._calls[call.id]
            self._calls[call.id] = call
            calls.append((call, raw))
        function = optional(message, "function_call", at, dict)
        if function is not None:
            path = field_path(at, "function_call")
            name = nonempty(function, "name", path)
            call = ToolCall(f"call_f{len(self._calls)}", name, string(function, "arguments", path))
            self._functions[name] = call.id
            self._calls[call.id] = call
            calls.append((call, {}))
        return calls

    def _call(self, raw: dict[str, Any], path: str) -> ToolCall:
        call_id = nonempty(raw, "id", path)
        if string(raw, "type", path) == "custom":
            custom, path = required(raw, "custom", path, dict), field_path(path, "custom")
            text = string(custom, "input", path)
            return ToolCall(call_id, nonempty(custom, "name", path), text, custom=True)
        function, path = required(raw, "function", path, dict), field_path(path, "function")
        arguments = string(function, "arguments", path)
        return ToolCall(call_id, nonempty(function, "name", path), arguments)

    def _add_result(self, message: dict[str, Any], at: str, role: str) -> None:
        if role == "tool":
            call_id = nonempty(message, "tool_call_id", at)
        else:
            name = nonempty(message, "name", at)
            call_id = self._functions.get(name, "")
            if not call_id:
                raise wrong_value(
                    field_path(at, "name"), "expected the name of a function that was called"
                )
        call = self._calls.get(call_id)
        parts: list[Text | Media] = []
        for part in self._content(message, at):
            if not isinstance(part, Text | Media):
                raise wrong_value(field_path(at, "content"), "expected text")
            parts.append(part)
        custom = call is not None and call.custom
        self._parts_of("user").append(ToolResult(call_id, tuple(parts), custom=custom))


def _thought(message: dict[str, Any], at: str) -> str:
    """Return the reasoning text in the history, under either of its names."""
    text = string(message, "reasoning_content", at)
    other = message.get("reasoning")
    return text or (other if isinstance(other, str) else "")


def _rank(part: Part, order: dict[str, int]) -> tuple[int, int]:
    """Return a sort key: results first, in the order of their calls; the rest keeps its order."""
    if not isinstance(part, ToolResult):
        return (1, 0)
    return (0, order.get(part.call_id, len(order)))


_PART_KINDS = ("text", "refusal", "image_url", "input_audio", "file")
_AUDIO_MIMES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_CACHE_S = {"30m": 1800, "12h": 43200}
_MIME_BY_ENDING = {"pdf": "application/pdf", "txt": "text/plain", "md": "text/markdown"}


def decode_content(content: object, at: str, asks: list[Ask]) -> list[Part]:
    """Decode the parts of a message's content. ``at``: its path."""
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(content)]
    if not isinstance(content, list):
        raise wrong_type(at, "expected a string or an array of parts")
    return [_part(part, f"{at}[{index}]", asks) for index, part in enumerate(content)]


def _part(part: object, at: str, asks: list[Ask]) -> Part:
    if isinstance(part, str):
        return Text(part)
    if not isinstance(part, dict):
        raise wrong_type(at, "expected an object")
    kind = nonempty(part, "type", at)
    if kind not in _PART_KINDS:
        raise wrong_value(field_path(at, "type"), "expected one of " + ", ".join(_PART_KINDS))
    cache = _cache(part, at, asks)
    if kind == "text":
        return Text(required(part, "text", at, str), cache)
    if kind == "refusal":
        return Refusal(required(part, "refusal", at, str))
    if kind == "image_url":
        return _image(part, at, asks, cache)
    if kind == "input_audio":
        return _audio(part, at, asks, cache)
    return _file(part, at, asks, cache)


def _cache(part: dict[str, Any], at: str, asks: list[Ask]) -> CacheMark | None:
    mark = optional(part, "prompt_cache_breakpoint", at, dict)
    if mark is None:
        return None
    path = field_path(at, "prompt_cache_breakpoint")
    asks.append(Ask("cache_mark", path))
    return CacheMark(_CACHE_S.get(one_of(mark, "ttl", path, tuple(_CACHE_S))))


def _image(part: dict[str, Any], at: str, asks: list[Ask], cache: CacheMark | None) -> Media:
    path = field_path(at, "image_url")
    image = part.get("image_url")
    if isinstance(image, str):  # a short form that some clients send
        image = {"url": image}
    if not isinstance(image, dict):
        raise wrong_type(path, "expected an object")
    url = nonempty(image, "url", path)
    detail = string(image, "detail", path)
    if detail and detail != "auto":
        asks.append(Ask("image_detail", field_path(path, "detail")))
    data = split_data_url(url, field_path(path, "url"))
    if data is None:
        asks.append(Ask("image_url", path))
        return Media("image", url=url, detail=detail, cache=cache, path=at)
    asks.append(Ask("image_data", path))
    return Media("image", data[0], data[1], detail=detail, cache=cache, path=at)


def _audio(part: dict[str, Any], at: str, asks: list[Ask], cache: CacheMark | None) -> Media:
    path = field_path(at, "input_audio")
    audio = required(part, "input_audio", at, dict)
    data = standard_base64(nonempty(audio, "data", path), field_path(path, "data"))
    mime = _AUDIO_MIMES.get(one_of(audio, "format", path, tuple(_AUDIO_MIMES)), "audio/wav")
    asks.append(Ask("audio", path))
    return Media("audio", mime, data, cache=cache, path=at)


def _file(part: dict[str, Any], at: str, asks: list[Ask], cache: CacheMark | None) -> Media:
    path = field_path(at, "file")
    file = required(part, "file", at, dict)
    name = string(file, "filename", path)
    encoded = string(file, "file_data", path)
    if not encoded:
        ref = string(file, "file_id", path)
        if not ref:
            raise Fault(Condition.FIELD_MISSING, param=field_path(path, "file_data"))
        asks.append(Ask("file_ref", field_path(path, "file_id")))
        return Media("file", ref=ref, name=name, cache=cache, path=at)
    data_path = field_path(path, "file_data")
    mime, data = split_data_url(encoded, data_path) or ("", standard_base64(encoded, data_path))
    mime = mime or _MIME_BY_ENDING.get(name.rpartition(".")[2].lower(), "application/pdf")
    feature: Feature = "document_data"
    plain = mime.startswith("text/")
    if plain:
        feature, mime, data = "text_document", "text/plain", text_of(data, data_path)
    asks.append(Ask(feature, path))
    if mime.startswith("image/"):
        return Media("image", mime, data, name=name, cache=cache, path=at)
    return Media("file", mime, data, name=name, plain=plain, cache=cache, path=at)

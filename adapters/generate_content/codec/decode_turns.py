"""The contents of a client's request as turns.

Calls may have no ids: they get one by their place, the same in each later request; results are
matched to calls by id, else by name in their order. Imported by this folder's ``decode_request``.
"""

from typing import Any

from adapters.faults import wrong_type, wrong_value
from adapters.generate_content.codec.wire.fields import Fields
from adapters.generate_content.codec.wire.media import decode_detail, decode_file, decode_inline
from adapters.generate_content.codec.wire.parts import signed
from adapters.ir.parts import Hosted, Media, Part, Reasoning, Role, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Ask
from adapters.json.jsonio import compact

_ROLES: dict[str, Role] = {"": "user", "user": "user", "function": "user", "model": "assistant"}
_HOSTED = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
_KINDS = ("text", "inlineData", "fileData", "functionCall", "functionResponse", *_HOSTED)
_EXPECTED = "expected a text, inlineData, fileData, a functionCall or a functionResponse"


class TurnReader:
    """Reads contents in their order into ``turns``, and what they ask for into ``asks``.

    Raises Fault INVALID_FIELD with the path. ``detail``: how closely images are looked at unless
    they say it themselves.
    """

    def __init__(self, detail: str = "") -> None:
        self.asks: list[Ask] = []
        self._detail = detail
        self._turns: list[tuple[Role, list[Part]]] = []
        self._calls: list[ToolCall] = []  # of the last turn of the model that has some
        self._open: list[ToolCall] = []  # those without a result

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns; neighbours of one role are one, and results come first, as their calls do."""
        return tuple(Turn(role, tuple(parts)) for role, parts in self._turns if parts)

    def read(self, value: object, index: int, path: str) -> None:
        """The next one of the contents."""
        content = Fields(value, path)
        role = _ROLES.get(content.text("role"))
        if role is None:
            raise wrong_value(content.at("role"), "expected user or model")
        if not self._turns or self._turns[-1][0] != role:
            self._turns.append((role, []))
            if role == "assistant":
                self._calls, self._open = [], []
        parts = self._turns[-1][1]
        results: list[ToolResult] = []
        for part in content.objects("parts"):
            self._read_part(part, role, index, (parts, results))
        if results:
            self._place(parts, results)

    def _read_part(
        self, part: Fields, role: Role, index: int, into: tuple[list[Part], list[ToolResult]]
    ) -> None:
        kinds = [kind for kind in _KINDS if kind in part]
        if len(kinds) > 1:
            raise wrong_value(part.path, f"it is {kinds[0]} and {kinds[1]} at once")
        parts, results = into
        kind = kinds[0] if kinds else ""
        if kind == "functionResponse":
            if role != "user":
                raise wrong_value(part.at(kind), "a result stands in a content of the user")
            results.append(self._result(part, index, len(results)))
            return
        if role == "assistant":
            self._read_signature(part, parts)
        if not kind:
            if "thoughtSignature" not in part and any(True for _ in part):
                raise wrong_value(part.path, _EXPECTED)
        elif kind == "text":
            self._read_text(part, role, parts)
        elif kind == "functionCall":
            if role != "assistant":
                raise wrong_value(part.at(kind), "a call stands in a content of the model")
            self._read_call(part, index, parts)
        elif kind in _HOSTED:
            raw = part.free_object(kind) or {}
            parts.append(Hosted(kind, {kind: raw}, part.at(kind)))
            self.asks.append(Ask("hosted_history", part.at(kind)))
        else:
            parts.append(self._media(part, kind))

    def _read_text(self, part: Fields, role: Role, parts: list[Part]) -> None:
        text = part.text("text")
        if part.flag("thought"):
            before = parts[-1] if parts else None
            if isinstance(before, Reasoning) and before.text and not before.opaque:
                parts[-1] = Reasoning(before.text + text, summary=True)
            elif text and role == "assistant":
                parts.append(Reasoning(text, summary=True))
        elif text:
            parts.append(Text(text))

    def _read_call(self, part: Fields, index: int, parts: list[Part]) -> None:
        said = part.object("functionCall")
        assert said is not None
        name = said.text("name")
        if not name:
            raise wrong_value(said.at("name"), "expected the name of a function")
        given = said.text("id") or f"call_{index}_{len(self._calls)}"
        arguments = compact(said.free_object("args") or {})
        call = ToolCall(given, name, arguments)
        self._calls.append(call)
        self._open.append(call)
        parts.append(call)

    def _read_signature(self, part: Fields, parts: list[Part]) -> None:
        """State that belongs to the thought before: on the call or text that follows it, or on an
        empty text behind it. Clients may leave out the thought itself; it came before the texts."""
        signature = part.text("thoughtSignature")
        if not signature:
            return
        said = signed(signature)
        if not said or not said.isascii():
            return  # a vendor's own, from another channel: it means nothing elsewhere
        opaque = said.decode("ascii")
        at = len(parts)
        while at and not part.flag("thought") and isinstance(parts[at - 1], Text):
            at -= 1
        before = parts[at - 1] if at else None
        if isinstance(before, Reasoning) and not before.opaque:
            parts[at - 1] = Reasoning(before.text, before.summary, opaque)
        else:
            parts.insert(at, Reasoning("", opaque=opaque))

    def _result(self, part: Fields, index: int, place: int) -> ToolResult:
        said = part.object("functionResponse")
        assert said is not None
        name, given = said.text("name"), said.text("id")
        call = self._match(name, given)
        call_id = call.id if call else given or f"call_{index}_r{place}"
        response = said.free_object("response") or {}
        text = _result_text(response)
        parts: list[Text | Media] = [Text(text)] if text else []
        for inner in said.objects("parts"):
            kind = next((kind for kind in ("inlineData", "fileData") if kind in inner), "")
            if not kind:
                raise wrong_value(inner.path, "expected inlineData or fileData")
            parts.append(self._media(inner, kind))
        name = name or (call.name if call else "")
        return ToolResult(call_id, tuple(parts), name, error="error" in response)

    def _match(self, name: str, given: str) -> ToolCall | None:
        """The call that is answered; it is open no more."""
        named = [call for call in self._open if given and call.id == given]
        named = named or [call for call in self._open if call.name == name]
        if not named and not name and not given:
            named = self._open[:1]
        if not named:
            return None
        found = named[0]
        self._open.remove(found)
        return found

    def _place(self, parts: list[Part], results: list[ToolResult]) -> None:
        """Results go before all else of the user's turn, in the order of their calls."""
        order = {call.id: place for place, call in enumerate(self._calls)}
        before = [part for part in parts if isinstance(part, ToolResult)]
        others = [part for part in parts if not isinstance(part, ToolResult)]
        listed = [*before, *results]
        listed.sort(key=lambda result: order.get(result.call_id, len(order)))
        parts[:] = [*listed, *others]

    def _media(self, part: Fields, kind: str) -> Media:
        inner = part.object(kind)
        assert inner is not None
        resolution = part.value("mediaResolution")
        level = resolution.get("level") if isinstance(resolution, dict) else None
        if resolution is not None:
            self.asks.append(Ask("image_detail", part.at("mediaResolution")))
        if "videoMetadata" in part:
            self.asks.append(Ask("other", part.at("videoMetadata")))
        decode = decode_inline if kind == "inlineData" else decode_file
        media, ask = decode(inner, decode_detail(level) or self._detail)
        self.asks.append(ask)
        return media


def decode_texts(content: Fields) -> tuple[Text, ...]:
    """The texts of a system instruction, whose role means nothing."""
    texts: list[Text] = []
    for part in content.objects("parts"):
        if "text" not in part:
            raise wrong_type(part.path, "expected a text")
        if part.text("text"):
            texts.append(Text(part.text("text")))
    return tuple(texts)


def _result_text(response: dict[str, Any]) -> str:
    """What a function has answered: the output or the error when there is nothing else."""
    if len(response) == 1:
        said = response.get("output", response.get("error", response))
        if isinstance(said, str):
            return said
        response = said
    return compact(response) if response != {} else ""

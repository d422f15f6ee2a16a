"""Turns as contents for an upstream.

Contents alternate and begin with the user; the content behind calls answers each of them, in their
order. Signatures go back to the part that had them. Imported by this folder's ``encode_request``.
"""

import re
from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Any

from adapters.generate_content.codec.wire.media import encode_media
from adapters.generate_content.codec.wire.names import Names
from adapters.generate_content.codec.wire.opaque_state import BYPASS, unsealed
from adapters.generate_content.codec.wire.parts import call_part
from adapters.ir.parts import (
    Media,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)

_OPENING = "Go on with the conversation."  # before a turn of the model that has nothing before it
_NO_RESULT = "no result provided"
_SEE_BELOW = "See what is attached."
_UNSIGNING = re.compile(r"(?:.*/)?gemini-(?:1|2)\b")

_Wire = dict[str, Any]


class ContentWriter:
    """Writes turns in their order into ``contents``."""

    def __init__(self, names: Names, *, signs: bool) -> None:
        self._names = names
        self._signs = signs  # whether the model wants its calls signed
        self._contents: list[_Wire] = []
        self._open: list[ToolCall] = []  # calls of the last content that have no result yet
        self._held: list[_Wire] = []  # system texts that wait for the results of these calls

    def add(self, turn: Turn) -> None:
        """The next turn. Raises Fault UNSUPPORTED for media that the vendor cannot read."""
        if turn.role == "assistant":
            written = self._model_parts(turn.parts)
            if not written:
                return
            self._answer_open()
            if not self._contents:
                self._extend("user", [{"text": _OPENING}])
            self._extend("model", written)
            self._open = [part for part in turn.parts if isinstance(part, ToolCall)]
        elif turn.role == "system":
            texts = [part.text for part in turn.parts if isinstance(part, Text) and part.text]
            if texts:
                wrapped = "\n".join(texts)
                self._held.append({"text": f"<system-reminder>{wrapped}</system-reminder>"})
        else:
            self._extend("user", self._user_parts(turn.parts))
            self._open = []

    def finish(self, system: list[_Wire]) -> list[_Wire]:
        """All contents. ``system``: parts that become a turn of the user when there is no other;
        the list is emptied then."""
        self._answer_open()
        if not self._contents:
            self._extend("user", system[:] or [{"text": ""}])
            system.clear()
        if self._signs:
            self._sign_calls()
        return self._contents

    def _extend(self, role: str, parts: list[_Wire]) -> None:
        if self._contents and self._contents[-1]["role"] == role:
            self._contents[-1]["parts"] += parts
        elif parts:
            self._contents.append({"role": role, "parts": parts})

    def _answer_open(self) -> None:
        """Results for calls that have none, for the vendor refuses a history without; and what was
        held back for them."""
        if self._open or self._held:
            self._extend("user", self._user_parts(()))
            self._open = []

    def _model_parts(self, parts: tuple[Part, ...]) -> list[_Wire]:
        written: list[_Wire] = []
        pending: deque[str] = deque()  # signatures of calls that come
        of_text: deque[str] = deque()  # of texts that come: not all clients keep the order of parts
        for part in parts:
            if isinstance(part, (Text, Refusal)):
                if part.text:
                    signed = {"thoughtSignature": of_text.popleft()} if of_text else {}
                    written.append({"text": part.text, **signed})
            elif isinstance(part, ToolCall):
                wire = call_part(part, self._names.sent(part.name, part.namespace))
                if pending:
                    wire["thoughtSignature"] = pending.popleft()
                written.append(wire)
            elif isinstance(part, Reasoning) and (known := unsealed(part.opaque)) is not None:
                place, signature = known
                if place == "call":
                    pending.append(signature)
                elif place == "thought":
                    written.append({
                        "text": part.text, "thought": True, "thoughtSignature": signature,
                    })  # fmt: skip
                elif not _sign_text(written, signature):
                    of_text.append(signature)
        return [*written, *({"text": "", "thoughtSignature": each} for each in of_text)]

    def _user_parts(self, parts: tuple[Part, ...]) -> list[_Wire]:
        of_call: dict[str, deque[ToolResult]] = {}
        for part in parts:
            if isinstance(part, ToolResult):
                of_call.setdefault(part.call_id, deque()).append(part)
        responses: list[_Wire] = []
        others: list[_Wire] = []
        for call in self._open:
            listed = of_call.get(call.id)
            if not listed:
                responses.append(self._response(call, {"error": _NO_RESULT}))
                continue
            result = listed.popleft()
            attached = [encode_media(part) for part in result.parts if isinstance(part, Media)]
            responses.append(self._response(call, _response_of(result, bool(attached))))
            others += attached
        for result in chain.from_iterable(of_call.values()):
            name = f" of {result.name}" if result.name else ""  # of no call: words of the user
            others.append({"text": f"Result{name}: {_text_of(result)}"})
            others += [encode_media(part) for part in result.parts if isinstance(part, Media)]
        for part in parts:
            if isinstance(part, (Text, Refusal)):
                if part.text:
                    others.append({"text": part.text})
            elif isinstance(part, Media):
                others.append(encode_media(part))
        held, self._held = self._held, []
        return [*responses, *held, *others]

    def _response(self, call: ToolCall, response: _Wire) -> _Wire:
        named = {"id": call.id} if call.id else {}
        name = self._names.sent(call.name, call.namespace)
        return {"functionResponse": {**named, "name": name, "response": response}}

    def _sign_calls(self) -> None:
        """The first call of each content since the user's last words has a signature: one that
        another model made has the value that is documented for it."""
        spoken = [place for place, content in enumerate(self._contents) if _has_words(content)]
        for content in self._contents[spoken[-1] :]:
            for part in content["parts"]:
                if "functionCall" in part:
                    part.setdefault("thoughtSignature", BYPASS)
                    break


def _has_words(content: _Wire) -> bool:
    """Whether the user says something here, beside results; the first content always does."""
    return content["role"] == "user" and any(
        "functionResponse" not in part for part in content["parts"]
    )


def wants_signatures(model: str) -> bool:
    """Whether a model refuses calls without a signature; those before the third generation do
    not."""
    return _UNSIGNING.match(model.removeprefix("models/")) is None


def text_parts(parts: Iterable[Part]) -> list[_Wire]:
    """The texts among parts, as parts of a system instruction."""
    return [{"text": part.text} for part in parts if isinstance(part, Text) and part.text]


def _sign_text(written: list[_Wire], signature: str) -> bool:
    """Put a signature on the text right before it; False when there is none without."""
    last = written[-1] if written else {}
    if "text" not in last or "thoughtSignature" in last:
        return False
    last["thoughtSignature"] = signature
    return True


def _response_of(result: ToolResult, attached: bool) -> _Wire:
    text = _text_of(result)
    if result.error:
        return {"error": text}
    return {"output": text or (_SEE_BELOW if attached else "")}


def _text_of(result: ToolResult) -> str:
    return "\n".join(part.text for part in result.parts if isinstance(part, Text))

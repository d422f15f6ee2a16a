"""Turns as contents for an upstream.

Contents alternate, the user first. The content after calls answers each of them, in order.
Signatures go back to the parts that had them. A tool's name starts with a letter or underscore,
followed by letters, digits, ``_ . : -``, at most 128 in total. Imported by ``encode_request``.
"""

import hashlib
import re
from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Any

from adapters.family.base64_data import base64_of
from adapters.faults import Condition, Fault
from adapters.generate_content.parts import BYPASS, call_part, mime_of, unsealed
from adapters.ir.parts import Media, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Tool

MAX_CHARS = 128

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_UNFIT = re.compile(r"[^A-Za-z0-9_.:-]")
_HASH_CHARS = 8
_ToolKey = tuple[str, str]  # the client's namespace and name


class ToolNames:
    """The names of one request's tools. A name is always encoded in the same way, so that the
    prefix of a conversation stays the same in later requests."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.renamed: dict[str, Tool] = {}  # name as sent -> tool, if not unchanged
        self._sent: dict[_ToolKey, str] = {}
        self._named: dict[str, list[str]] = {}
        used: set[str] = set()
        for tool in tools:
            if tool.kind == "hosted":
                continue
            name = fitting(tool.namespace, tool.name)
            if name in used:
                name = _marked(name, f"{tool.namespace}\n{tool.name}")
            used.add(name)
            self._sent[tool.namespace, tool.name] = name
            self._named.setdefault(tool.name, []).append(name)
            if tool.kind == "custom" or tool.namespace or name != tool.name:
                self.renamed[name] = tool

    def sent(self, name: str, namespace: str = "") -> str:
        """Return a tool's name for the upstream, even if the tool is no longer declared."""
        sent_name = self._sent.get((namespace, name))
        return sent_name if sent_name is not None else fitting(namespace, name)

    def named(self, name: str) -> list[str]:
        """Return the names sent for tools of this name, in any namespace."""
        return self._named.get(name, [])


def fitting(namespace: str, name: str) -> str:
    """Return a name that the family accepts; different names stay different."""
    whole = f"{namespace}__{name}" if namespace else name
    if _NAME.fullmatch(whole):
        return whole
    plain = _UNFIT.sub("_", whole)
    if not plain or not (plain[0].isalpha() or plain[0] == "_"):
        plain = "_" + plain
    return _marked(plain, whole)


def _marked(plain: str, whole: str) -> str:
    digest = hashlib.sha256(whole.encode(errors="replace")).hexdigest()[:_HASH_CHARS]
    return f"{plain[: MAX_CHARS - _HASH_CHARS - 1]}_{digest}"


# Formats of images; the vendor refuses any other.
_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})


def encode_media(media: Media) -> dict[str, Any]:
    """Return the part of a request. Raises Fault UNSUPPORTED for addresses that the vendor cannot
    read, another vendor's files, and images in other formats."""
    if media.plain:
        data = {"mimeType": media.mime or "text/plain", "data": base64_of(media.data)}
        return {"inlineData": data}
    mime = media.mime or mime_of(media.url) or ("" if media.url else _DEFAULT_MIME[media.kind])
    mime = "image/jpeg" if mime == "image/jpg" else mime
    if mime.startswith("image/") and mime not in _IMAGES:
        raise Fault(Condition.UNSUPPORTED, param=media.path or None)
    if media.data:
        return {"inlineData": {"mimeType": mime, "data": media.data}}
    if media.ref or not media.url.startswith(("https://", "gs://")):
        raise Fault(Condition.UNSUPPORTED, param=media.path or None)
    return {"fileData": ({"mimeType": mime} if mime else {}) | {"fileUri": media.url}}


_DEFAULT_MIME = {
    "image": "image/png", "audio": "audio/wav", "file": "application/pdf", "video": "video/mp4",
}  # fmt: skip


_OPENING = "Go on with the conversation."  # before a turn of the model that starts the conversation
_NO_RESULT = "no result provided"
_SEE_BELOW = "See what is attached."

_Wire = dict[str, Any]


class ContentWriter:
    """Writer of turns, in order, into ``contents``."""

    def __init__(self, names: ToolNames, *, signs: bool) -> None:
        self._names = names
        self._signs = signs  # the model requires signed calls
        self._contents: list[_Wire] = []
        self._open: list[ToolCall] = []  # calls of the last content without a result so far
        self._held: list[_Wire] = []  # system texts that wait for the results of these calls

    def add(self, turn: Turn) -> None:
        """Add the next turn. Raises Fault UNSUPPORTED for media that the vendor cannot read."""
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
        """Return all contents. ``system``: parts that become a user's turn if there is no other
        turn; the list is then emptied."""
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
        """Add results for calls without any, which the vendor refuses, and the held texts."""
        if self._open or self._held:
            self._extend("user", self._user_parts(()))
            self._open = []

    def _model_parts(self, parts: tuple[Part, ...]) -> list[_Wire]:
        written: list[_Wire] = []
        pending: deque[str] = deque()  # signatures of calls that follow
        of_text: deque[str] = deque()  # of texts that follow: some clients reorder parts
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
            elif isinstance(part, Reasoning) and (placed := unsealed(part.opaque)) is not None:
                place, signature = placed
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
        rest: list[_Wire] = []
        for call in self._open:
            listed = of_call.get(call.id)
            if not listed:
                responses.append(self._response(call, {"error": _NO_RESULT}))
                continue
            result = listed.popleft()
            attached = [encode_media(part) for part in result.parts if isinstance(part, Media)]
            responses.append(self._response(call, _response_of(result, bool(attached))))
            rest += attached
        for result in chain.from_iterable(of_call.values()):
            name = f" of {result.name}" if result.name else ""  # no call: the user's text
            rest.append({"text": f"Result{name}: {_text_of(result)}"})
            rest += [encode_media(part) for part in result.parts if isinstance(part, Media)]
        for part in parts:
            if isinstance(part, (Text, Refusal)):
                if part.text:
                    rest.append({"text": part.text})
            elif isinstance(part, Media):
                rest.append(encode_media(part))
        held, self._held = self._held, []
        return [*responses, *held, *rest]

    def _response(self, call: ToolCall, response: _Wire) -> _Wire:
        named = {"id": call.id} if call.id else {}
        name = self._names.sent(call.name, call.namespace)
        return {"functionResponse": {**named, "name": name, "response": response}}

    def _sign_calls(self) -> None:
        """Sign the first call of each content since the user's last text. A call that another model
        made gets the documented placeholder."""
        spoken = [place for place, content in enumerate(self._contents) if _has_words(content)]
        for content in self._contents[spoken[-1] :]:
            for part in content["parts"]:
                if "functionCall" in part:
                    part.setdefault("thoughtSignature", BYPASS)
                    break


def _has_words(content: _Wire) -> bool:
    """Return true if the user says something besides results, as in every first content."""
    return content["role"] == "user" and any(
        "functionResponse" not in part for part in content["parts"]
    )


def text_parts(parts: Iterable[Part]) -> list[_Wire]:
    """Return the texts among parts, as parts of a system instruction."""
    return [{"text": part.text} for part in parts if isinstance(part, Text) and part.text]


def _sign_text(written: list[_Wire], signature: str) -> bool:
    """Put a signature on the text right before. Return False if there is no text without one."""
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

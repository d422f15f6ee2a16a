"""The contents of a client's request as turns.

Calls without an id get one from their place, the same in each later request. Results are matched to
calls by id, otherwise by name in order. Imported by ``decode_request``.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from adapters.family.base64_data import standard_base64, text_of
from adapters.faults import wrong_type, wrong_value
from adapters.generate_content.parts import ApiFields, mime_of, signed
from adapters.ir.parts import Hosted, Media, Part, Reasoning, Role, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Ask, Feature
from adapters.json.jsonio import compact
from adapters.json.structure import Steps

_FILMS = re.compile(r"https://(?:www\.|m\.)?(?:youtube\.com|youtu\.be)/")
_UPLOADED = re.compile(r"(?:https://generativelanguage\.googleapis\.com/\w+/)?files/|gs://")
_DETAILS = {"MEDIA_RESOLUTION_LOW": "low", "MEDIA_RESOLUTION_HIGH": "high"}


def decode_inline(blob: ApiFields, detail: str = "") -> tuple[Media, Ask]:
    """Return the media in ``inlineData``. Raises INVALID_FIELD without base64 or type."""
    mime = _plain_mime(blob.text("mimeType"))
    if not mime:
        raise wrong_value(blob.at("mimeType"), "expected the MIME type of the data")
    data = standard_base64(blob.text("data"), blob.at("data"))
    if not data:
        raise wrong_value(blob.at("data"), "the data are empty")
    name = blob.text("displayName")
    kind = _kind(mime)
    if kind == "file" and mime.startswith("text/"):
        text = text_of(data, blob.at("data"))
        media = Media("file", "text/plain", text, name=name, plain=True, path=blob.path)
    else:
        media = Media(kind, mime, data, name=name, detail=detail, path=blob.path)
    return media, Ask(_feature(media), blob.path)


def decode_file(file: ApiFields, detail: str = "") -> tuple[Media, Ask]:
    """Return the media in ``fileData``: a file stored at the vendor, or an address."""
    uri = file.text("fileUri")
    if not uri:
        raise wrong_value(file.at("fileUri"), "expected the address of a file")
    mime = _plain_mime(file.text("mimeType")) or mime_of(uri)
    name = file.text("displayName")
    if _UPLOADED.match(uri):
        media = Media(_kind(mime), mime, ref=uri, name=name, detail=detail, path=file.path)
    else:
        kind = "video" if _FILMS.match(uri) else _kind(mime)
        media = Media(kind, mime, url=uri, name=name, detail=detail, path=file.path)
    return media, Ask(_feature(media), file.path)


def decode_detail(resolution: object) -> str:
    """Return an image's level of detail; empty for the vendor's default."""
    return _DETAILS.get(resolution.upper(), "") if isinstance(resolution, str) else ""


def _kind(mime: str) -> Literal["image", "audio", "file", "video"]:
    family = mime.partition("/")[0]
    if family == "image":
        return "image"
    if family == "audio":
        return "audio"
    return "video" if family == "video" else "file"


def _feature(media: Media) -> Feature:
    if media.kind == "audio":
        return "audio"
    if media.kind == "video":
        return "video"
    if media.ref:
        return "file_ref"
    if media.plain:
        return "text_document"
    if media.kind == "image":
        return "image_url" if media.url else "image_data"
    return "document_url" if media.url else "document_data"


def _plain_mime(mime: str) -> str:
    return mime.partition(";")[0].strip().lower()


NO_CALL = 2**62  # place of a result without a call: after all others


class CallMatcher:
    """The calls of one turn of the model, each answered once: by id, otherwise by name in order.

    Matching a response takes constant time, however many calls there are.
    """

    def __init__(self) -> None:
        self._calls: list[ToolCall] = []
        self._of_id: dict[str, deque[int]] = {}
        self._of_name: dict[str, deque[int]] = {}
        self._all: deque[int] = deque()
        self._answered: set[int] = set()

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: ToolCall) -> None:
        """Add the next call of the turn."""
        place = len(self._calls)
        self._calls.append(call)
        self._of_id.setdefault(call.id, deque()).append(place)
        self._of_name.setdefault(call.name, deque()).append(place)
        self._all.append(place)

    def answer(self, name: str, given_id: str) -> tuple[int, ToolCall | None]:
        """Return the place of the answered call, and the call; (NO_CALL, None) if there is none. A
        response with neither name nor id answers the first open call."""
        listed = [self._of_id.get(given_id), self._of_name.get(name)]
        if not name and not given_id:
            listed = [self._all]
        for places in listed:
            while places:
                place = places.popleft()
                if place not in self._answered:
                    self._answered.add(place)
                    return place, self._calls[place]
        return NO_CALL, None


_ROLES: dict[str, Role] = {"": "user", "user": "user", "function": "user", "model": "assistant"}
_HOSTED = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
_KINDS = frozenset({
    "text", "inlineData", "fileData", "functionCall", "functionResponse", *_HOSTED,
})  # fmt: skip
PARTS_AT_ONCE = 1000  # between two yields

_EXPECTED = "expected a text, inlineData, fileData, a functionCall or a functionResponse"


@dataclass(slots=True)
class _Thought:
    """A thought whose text comes in parts. ``opaque`` is set once."""

    pieces: list[str]
    opaque: str

    def made(self) -> Reasoning:
        text = "".join(self.pieces)
        return Reasoning(text, summary=bool(text), opaque=self.opaque)


@dataclass(slots=True)
class _Turn:
    """A turn that may span several contents."""

    role: Role
    parts: list[Part | _Thought] = field(default_factory=list)
    results: list[tuple[int, ToolResult]] = field(default_factory=list)  # by call
    run: int = 0  # start of the texts after the last thought, for a signature that belongs to it

    def think(self, text: str, opaque: str) -> None:
        """Add a thought, or more text of the one right before."""
        last = self.parts[-1] if self.parts else None
        if isinstance(last, _Thought) and not last.opaque:
            last.pieces.append(text)
            last.opaque = opaque
        elif text or opaque:
            self.parts.append(_Thought([text], opaque))

    def seal(self, opaque: str) -> None:
        """Add state of the preceding thought. It comes on the call or text that follows, or on an
        empty text. Clients may leave out the thought itself, which came before the texts."""
        before = self.parts[self.run - 1] if self.run else None
        if isinstance(before, _Thought) and not before.opaque:
            before.opaque = opaque
        else:
            self.parts.insert(self.run, _Thought([""], opaque))

    def made(self) -> Turn:
        results = sorted(self.results, key=lambda placed: placed[0])
        parts = [part.made() if isinstance(part, _Thought) else part for part in self.parts]
        return Turn(self.role, (*(result for _, result in results), *parts))


class TurnReader:
    """Reader of contents, in order, into ``turns``, and of what they ask for into ``asks``.

    Raises Fault INVALID_FIELD with the path. ``detail``: for images without their own level.
    """

    def __init__(self, detail: str = "") -> None:
        self.asks: list[Ask] = []
        self._detail = detail
        self._turns: list[_Turn] = []
        self._calls = CallMatcher()  # calls of the model's last turn

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns. Neighbours of one role are joined, and results come first, in the order of
        calls."""
        return tuple(turn.made() for turn in self._turns if turn.parts or turn.results)

    def read(self, value: object, index: int, path: str) -> Steps[None]:
        """Read the next content, in steps."""
        content = ApiFields(value, path)
        role = _ROLES.get(content.text("role"))
        if role is None:
            raise wrong_value(content.at("role"), "expected user or model")
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(_Turn(role))
            if role == "assistant":
                self._calls = CallMatcher()
        turn = self._turns[-1]
        for number, (value_of_part, place) in enumerate(content.items("parts")):
            part = ApiFields(value_of_part, place)
            kinds = part.among(_KINDS)
            if len(kinds) > 1:
                raise wrong_value(part.path, f"it is {kinds[0]} and {kinds[1]} at once")
            kind = kinds[0] if kinds else ""
            if role == "assistant":
                self._read_model(part, kind, index, turn)
            elif kind == "functionResponse":
                self._read_result(part, index, turn)
            elif kind == "functionCall":
                raise wrong_value(part.at(kind), "a call stands in a content of the model")
            else:
                self._read_other(part, kind, turn)
            if number % PARTS_AT_ONCE == PARTS_AT_ONCE - 1:
                yield False

    def _read_model(self, part: ApiFields, kind: str, index: int, turn: "_Turn") -> None:
        signature = part.text("thoughtSignature")
        opaque = _opaque(signature) if signature else ""
        thought = kind == "text" and part.flag("thought")
        if opaque and not thought:
            turn.seal(opaque)
        if kind == "functionResponse":
            raise wrong_value(part.at(kind), "a result stands in a content of the user")
        if kind == "functionCall":
            turn.parts.append(self._call(part, index))
        elif thought:
            turn.think(part.text("text"), opaque)
        else:
            self._read_other(part, kind, turn)
        if opaque or not (turn.parts and isinstance(turn.parts[-1], Text)):
            turn.run = len(turn.parts)

    def _read_other(self, part: ApiFields, kind: str, turn: "_Turn") -> None:
        """Read a part that both roles may have."""
        if not kind:
            if "thoughtSignature" not in part and any(True for _ in part):
                raise wrong_value(part.path, _EXPECTED)
        elif kind == "text":
            if part.text("text") and not part.flag("thought"):
                turn.parts.append(Text(part.text("text")))
        elif kind in _HOSTED:
            raw = part.free_object(kind) or {}
            turn.parts.append(Hosted(kind, {kind: raw}, part.at(kind)))
            self.asks.append(Ask("hosted_history", part.at(kind)))
        else:
            turn.parts.append(self._media(part, kind))

    def _call(self, part: ApiFields, index: int) -> ToolCall:
        function = part.object("functionCall")
        assert function is not None
        name = function.text("name")
        if not name:
            raise wrong_value(function.at("name"), "expected the name of a function")
        call_id = function.text("id") or f"call_{index}_{len(self._calls)}"
        call = ToolCall(call_id, name, compact(function.free_object("args") or {}))
        self._calls.add(call)
        return call

    def _read_result(self, part: ApiFields, index: int, turn: "_Turn") -> None:
        answer = part.object("functionResponse")
        assert answer is not None
        name, given_id = answer.text("name"), answer.text("id")
        place, call = self._calls.answer(name, given_id)
        call_id = call.id if call else given_id or f"call_{index}_r{len(turn.results)}"
        response = answer.free_object("response") or {}
        text = _result_text(response)
        parts: list[Text | Media] = [Text(text)] if text else []
        for inner in answer.objects("parts"):
            kind = next((kind for kind in ("inlineData", "fileData") if kind in inner), "")
            if not kind:
                raise wrong_value(inner.path, "expected inlineData or fileData")
            parts.append(self._media(inner, kind))
        name = name or (call.name if call else "")
        result = ToolResult(call_id, tuple(parts), name, error="error" in response)
        turn.results.append((place, result))

    def _media(self, part: ApiFields, kind: str) -> Media:
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


def decode_texts(content: ApiFields) -> tuple[Text, ...]:
    """Return the texts of a system instruction; its role is ignored."""
    texts: list[Text] = []
    for part in content.objects("parts"):
        if "text" not in part:
            raise wrong_type(part.path, "expected a text")
        if part.text("text"):
            texts.append(Text(part.text("text")))
    return tuple(texts)


def _result_text(response: dict[str, Any]) -> str:
    """Return the text of a function's response: its only output or error, otherwise all of it."""
    if len(response) == 1:
        output = response.get("output", response.get("error", response))
        if isinstance(output, str):
            return output
        response = output
    return compact(response) if response != {} else ""


def _opaque(signature: str) -> str:
    """Return the gateway's state in a signature; empty for a vendor's own signature, which comes
    from another channel and has no meaning elsewhere."""
    decoded = signed(signature)
    return decoded.decode("ascii") if decoded.isascii() else ""

"""The conversation for upstreams: alternating roles, the user first, each call with its result.

Facts: the vendor refuses empty texts, results that are not first in the message after their calls,
calls without results, and duplicate ids. It accepts four types of images, PDF, and plain text.
Imported by ``encode_request``.
"""

import hashlib
import re
from collections import deque
from typing import Any

from adapters.family.base64_data import text_of
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.ir.parts import (
    CacheMark,
    Media,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from adapters.json.structure import Steps
from adapters.messages.parts import arguments_of, fit_id, thought_of

# A time up to half an hour, in other families, becomes five minutes here; anything longer an hour.
_SHORT_MAX_S = 1800
CACHE_FIELD = "cache_control"


def with_mark(block: dict[str, Any], mark: CacheMark | None) -> dict[str, Any]:
    """Return the block for an upstream, marked if ``mark`` is set."""
    if mark is None:
        return block
    written = {"type": "ephemeral"}
    if mark.ttl_s is not None:
        written["ttl"] = "5m" if mark.ttl_s <= _SHORT_MAX_S else "1h"
    return block | {CACHE_FIELD: written}


MAX_NAME_CHARS = 128
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_CHARS = 8


def sent_name(name: str, namespace: str = "") -> str:
    """Return a tool's name in a form that the vendor accepts, the same in every call."""
    full = f"{namespace}__{name}" if namespace else name
    fit = _UNFIT.sub("_", full)
    if fit == full and 0 < len(fit) <= MAX_NAME_CHARS:
        return fit
    mark = hashlib.sha256(full.encode(errors="replace")).hexdigest()[:_HASH_CHARS]
    return f"{fit[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{mark}"


_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF = "application/pdf"
# Types for files without a type, by the first characters of their base64.
_BEGINNINGS = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("JVBERi0", _PDF),
)
_TEXTS = ("application/json", "application/xml", "application/yaml", "application/x-yaml")
_SAMPLE_CHARS = 64


def encode_media(media: Media, *, documents: bool) -> dict[str, Any]:
    """Return the block. Raises Fault UNSUPPORTED if the family has no block for it. ``documents``:
    the model reads documents; if not, plain-text documents become text."""
    if media.ref or media.kind not in ("image", "file"):
        raise _unsupported(media)
    if media.kind == "image" or media.mime.startswith("image/"):
        return with_mark({"type": "image", "source": _image_source(media)}, media.cache)
    block: dict[str, Any] = {"type": "document", "source": _document_source(media)}
    source = block["source"]
    if source["type"] == "text" and not documents:
        heading = f"{media.name}\n\n" if media.name else ""
        return with_mark({"type": "text", "text": heading + source["data"]}, media.cache)
    if media.name:
        block["title"] = media.name
    return with_mark(block, media.cache)


def _image_source(media: Media) -> dict[str, Any]:
    if media.url:
        return {"type": "url", "url": media.url}
    mime = {"image/jpg": "image/jpeg"}.get(media.mime, media.mime)
    if mime not in _IMAGES:
        mime = _guessed(media.data)
    if mime not in _IMAGES:
        raise _unsupported(media)
    return {"type": "base64", "media_type": mime, "data": media.data}


def _document_source(media: Media) -> dict[str, Any]:
    if media.url:
        return {"type": "url", "url": media.url}
    if media.plain:
        return {"type": "text", "media_type": "text/plain", "data": media.data}
    mime = media.mime or _guessed(media.data)
    if mime == _PDF or _guessed(media.data) == _PDF:
        return {"type": "base64", "media_type": _PDF, "data": media.data}
    if mime.startswith("text/") or mime in _TEXTS:
        text = text_of(media.data, media.path)
        return {"type": "text", "media_type": "text/plain", "data": text}
    raise _unsupported(media)


def _guessed(data: str) -> str:
    head = data[:_SAMPLE_CHARS]
    return next((mime for start, mime in _BEGINNINGS if head.startswith(start)), "")


def _unsupported(media: Media) -> Fault:
    return Fault(Condition.UNSUPPORTED, param=media.path or None)


NO_RESULT = "No result provided."
OPENING = "Hello."  # before a conversation that the assistant starts
GO_ON = "Go on."  # after an assistant's turn that the model cannot continue
_FAILED = "The tool failed."
_THOUGHTS = ("thinking", "redacted_thinking")
_USER, _ASSISTANT = "user", "assistant"

Block = dict[str, Any]


def turn_steps(
    turns: tuple[Turn, ...], traits: Traits, *, prefill: bool
) -> Steps[list[dict[str, Any]]]:
    """Return the messages, in steps. ``prefill``: the model may continue the last turn."""
    writer = _Writer(traits)
    for turn in turns:
        if turn.role == "system":
            writer.add_system(turn, native=traits.system_turns)
        elif turn.role == "assistant":
            writer.add_assistant(turn)
        else:
            writer.add_user(turn)
        yield False
    return writer.finish(prefill=prefill)


def text_block(part: Text | Refusal) -> Block | None:
    """Return a text block; None for a text of only blanks, which the vendor refuses."""
    if not part.text.strip():
        return None
    block: Block = {"type": "text", "text": part.text}
    return with_mark(block, part.cache) if isinstance(part, Text) else block


class _Writer:
    """Writer of the messages of one request."""

    def __init__(self, traits: Traits) -> None:
        self._documents = traits.documents
        self._echo = traits.reasoning_echo
        self._messages: list[dict[str, Any]] = []
        # calls without result: the client's id -> the ids sent for it
        self._open: dict[str, deque[str]] = {}
        self._ids: set[str] = set()  # ids that were sent

    def add_system(self, turn: Turn, *, native: bool) -> None:
        """Add a system turn between others. Models without such turns get a tagged text."""
        texts = [part.text for part in turn.parts if isinstance(part, Text) and part.text.strip()]
        if not texts:
            return
        text = "\n\n".join(texts)
        if native and not self._open and self._last_role() == _USER:
            self._messages.append({"role": "system", "content": [{"type": "text", "text": text}]})
            return
        reminder = f"<system-reminder>\n{text}\n</system-reminder>"
        self._append(_USER, [{"type": "text", "text": reminder}])

    def add_assistant(self, turn: Turn) -> None:
        """Add a turn of the model. Its calls wait for their results."""
        self._close_calls()
        blocks: list[Block] = []
        for part in turn.parts:
            if isinstance(part, ToolCall):
                blocks.append(self._call(part))
            elif isinstance(part, Text | Refusal):
                blocks += filter(None, [text_block(part)])
            elif isinstance(part, Reasoning):
                blocks += filter(None, [thought_of(part.opaque) or self._unsigned(part)])
            elif isinstance(part, Media):
                blocks.append(self._said_media(part))
        if not self._messages:
            self._append(_USER, [{"type": "text", "text": OPENING}])
        # Thoughts must come first in a turn; some families have them after the text.
        self._append(_ASSISTANT, sorted(blocks, key=lambda block: block["type"] not in _THOUGHTS))

    def _unsigned(self, part: Reasoning) -> Block | None:
        """Return a thought without a signature, for a vendor that does not sign thoughts."""
        if not (self._echo and part.text):
            return None
        return {"type": "thinking", "thinking": part.text, "signature": ""}

    def add_user(self, turn: Turn) -> None:
        """Add results for the preceding calls, then the rest."""
        results: list[Block] = []
        rest: list[Block] = []
        for part in turn.parts:
            if isinstance(part, ToolResult):
                if waiting := self._open.get(part.call_id):
                    results.append(self._result(part, waiting.popleft()))
                    if not waiting:
                        del self._open[part.call_id]
                else:
                    rest += self._orphan(part)
            else:
                rest += self._user_part(part)
        self._append(_USER, results + rest)

    def finish(self, *, prefill: bool) -> list[dict[str, Any]]:
        """Return the messages after the last turn."""
        self._close_calls()
        self._order_results()
        if self._last_role() == _ASSISTANT:
            last = self._messages[-1]["content"][-1]
            if not prefill:
                self._append(_USER, [{"type": "text", "text": GO_ON}])
            elif last["type"] == "text":
                last["text"] = last["text"].rstrip()  # trailing blanks are refused
        return self._messages

    def _last_role(self) -> str:
        return str(self._messages[-1]["role"]) if self._messages else ""

    def _append(self, role: str, blocks: list[Block]) -> None:
        if not blocks:
            return
        if self._last_role() == role:
            self._messages[-1]["content"] += blocks
        else:
            self._messages.append({"role": role, "content": blocks})

    def _close_calls(self) -> None:
        """Add results for calls without any, such as those of an interrupted client."""
        missing = [
            _result_block(sent, NO_RESULT) for waiting in self._open.values() for sent in waiting
        ]
        self._open.clear()
        self._append(_USER, missing)

    def _order_results(self) -> None:
        """Sort results to the front, in the order of the calls in the message before."""
        order: dict[str, int] = {}
        for message in self._messages:
            if message["role"] == _ASSISTANT:
                calls = (block for block in message["content"] if block["type"] == "tool_use")
                order = {block["id"]: at for at, block in enumerate(calls)}
            elif message["role"] == _USER and order:
                last = len(order)
                message["content"].sort(key=lambda block: order.get(_answered(block), last))

    def _call(self, part: ToolCall) -> Block:
        sent = fit_id(part.id or f"call_{len(self._ids)}")
        if sent in self._ids:
            sent = f"{sent}_{len(self._ids)}"
        self._ids.add(sent)
        self._open.setdefault(part.id, deque()).append(sent)
        arguments = {"input": part.arguments} if part.custom else arguments_of(part.arguments)
        name = sent_name(part.name, part.namespace)
        block = {"type": "tool_use", "id": sent, "name": name, "input": arguments}
        return with_mark(block, part.cache)

    def _said_media(self, part: Media) -> Block:
        """Return a document that the assistant showed. Raises Fault UNSUPPORTED for an image, which
        it cannot show."""
        block = encode_media(part, documents=self._documents)
        if block["type"] == "image":
            raise Fault(Condition.UNSUPPORTED, param=part.path or None)
        return block

    def _result(self, part: ToolResult, sent: str) -> Block:
        blocks = self._result_parts(part)
        content: Any = blocks
        if len(blocks) == 1 and blocks[0]["type"] == "text":
            content = blocks[0]["text"]
        elif not blocks:
            content = _FAILED if part.error else ""
        block = _result_block(sent, content)
        if part.error:
            block["is_error"] = True
        marks = [each.cache for each in part.parts if each.cache is not None]
        return with_mark(block, part.cache or (marks[-1] if marks else None))

    def _result_parts(self, part: ToolResult) -> list[Block]:
        blocks: list[Block] = []
        for each in part.parts:
            blocks += self._user_part(each)
        for block in blocks:
            block.pop("cache_control", None)  # the result as a whole has the mark
        return blocks

    def _orphan(self, part: ToolResult) -> list[Block]:
        """Return a result without a preceding call, as a text."""
        name = f" of {part.name}" if part.name else ""
        return [
            {"type": "text", "text": f"Result{name} ({part.call_id}):"},
            *self._result_parts(part),
        ]

    def _user_part(self, part: Part) -> list[Block]:
        if isinstance(part, Text):
            block = text_block(part)
            return [block] if block is not None else []
        if isinstance(part, Media):
            return [encode_media(part, documents=self._documents)]
        return []


def _result_block(sent: str, content: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": sent, "content": content}


def _answered(block: Block) -> str:
    return str(block.get("tool_use_id", ""))

"""A conversation as a client of a family sends it, and the text of the answer.

Written and read by the families' codecs, like the relay's own requests to upstreams, so that
reasoning, sampling and searches have the form that the model accepts.
"""

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from adapters.family.codec import Target, UpstreamCodec
from adapters.family.traits import Traits
from adapters.faults import Fault
from adapters.framing.sse import EventSplitter, event_fields
from adapters.ir.answer import Choice, Delta, Event, Opened
from adapters.ir.parts import Refusal, Text, Turn
from adapters.ir.request import Effort, Request, Thinking, Tool
from adapters.json.jsonio import replace_fields
from adapters.json.structure import at_once
from operations.client_settings import MESSAGES_VERSION, SampleRequest

MAX_EVENT_BYTES = 4 << 20
GENERATE_CONTENT = "generate_content"
PATHS: Mapping[str, str] = {
    "chat_completions": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
"""The paths of the families whose bodies name the model."""
_SEARCH = Tool("hosted", "web_search", search=True, raw={})
_UNUSED = ("include",)  # fields of a body: state for a next turn, which is sent as text here


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A turn of a conversation."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation and its settings. None and "": the field is not sent. `further`: additional
    fields of the body, which come before the others."""

    model: str
    turns: Sequence[ChatTurn]
    system: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    effort: Effort | None = None
    stream: bool = True
    search: bool = False
    further: Mapping[str, Any] = field(default_factory=dict)


def _codec_of(family: str) -> UpstreamCodec:
    # Imported by name: the Hub loads the codecs when a body first has to be written or read.
    codecs: Any = importlib.import_module("adapters.codecs")
    codec: UpstreamCodec = codecs.CODECS[family].upstream
    return codec


def encode_chat(family: str, chat: Chat, traits: Traits) -> SampleRequest:
    """Return the request of a conversation, without a credential. `traits` are the model's."""
    thinking = Thinking(chat.effort) if chat.effort else None
    request = Request(
        family,
        chat.stream,
        tuple(Turn(turn.role, (Text(turn.text),)) for turn in chat.turns),
        system=(Text(chat.system),) if chat.system else (),
        tools=(_SEARCH,) if chat.search else (),
        thinking=thinking,
        temperature=chat.temperature,
        top_p=chat.top_p,
        max_output_tokens=chat.max_tokens,
    )
    traits = replace_fields(traits, auto_cache=False)
    target = Target("", chat.model, traits, stream_options=False)
    encoded = at_once(_codec_of(family).encode_request(request, target, False))
    body = {
        name: _plain(value)
        for name, value in json.loads(encoded.body).items()
        if name not in _UNUSED
    }
    body |= chat.further
    if family != GENERATE_CONTENT:
        headers = {"anthropic-version": MESSAGES_VERSION} if family == "messages" else {}
        return SampleRequest(PATHS[family], headers, body)
    verb = "streamGenerateContent?alt=sse" if chat.stream else "generateContent"
    path = f"/v1beta/models/{quote(chat.model, safe='')}:{verb}"
    return SampleRequest(path, {}, body)


def _plain(value: Any) -> Any:
    """Replace a content list with a single text by the text, as people write it."""
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], dict):
            block = value[0]
            if block.keys() == {"type", "text"} and block["type"] in ("text", "input_text"):
                return block["text"]
        return [_plain(item) for item in value]
    if isinstance(value, dict) and "content" in value:
        rest = {name: item for name, item in value.items() if (name, item) != ("type", "message")}
        return {**rest, "content": _plain(value["content"])}
    return value


class AnswerReader:
    """A reader of the text of an answer's first choice, streamed or whole. Unreadable parts are
    skipped: the client shows the answer as it arrived."""

    def __init__(self, family: str) -> None:
        self._codec = _codec_of(family)
        self._splitter = EventSplitter(MAX_EVENT_BYTES)
        self._decoder = self._codec.open_decoder()
        self._texts: set[int] = set()  # slots of text

    def feed(self, chunk: bytes) -> str:
        """Return the text of the next chunk of a stream."""
        return "".join(self._text_of(event) for event in self._splitter.feed(chunk))

    def whole(self, body: bytes) -> str:
        """Return the text of a whole answer."""
        try:
            choices: Sequence[Choice] = at_once(self._codec.decode_answer(body))
        except (Fault, ValueError):
            return ""
        parts = choices[0].parts if choices else ()
        return "".join(part.text for part in parts if isinstance(part, (Text, Refusal)))

    def _text_of(self, event: bytes) -> str:
        name, data = event_fields(event)
        try:
            fields = json.loads(data or b"null")
            events = self._decoder.read(name, fields) if isinstance(fields, dict) else []
        except (Fault, ValueError):
            return ""
        return "".join(map(self._text_of_event, events))

    def _text_of_event(self, event: Event) -> str:
        if isinstance(event, Opened) and event.kind in ("text", "refusal") and not event.choice:
            self._texts.add(event.slot)
        if isinstance(event, Delta) and event.slot in self._texts:
            return event.text
        return ""

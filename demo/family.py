"""The terms that the demo vendor's server and its families share, and the base of a family.

Independent of the wire formats (one file a family) and of sockets (server).
"""

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Finish = Literal["stop", "length", "stop_sequence", "tools"]
ToolMode = Literal["auto", "none", "any"]

# The names in model lists. Any other name is served as well.
MODEL_NAMES = ("demo-large", "demo-small")


class Refusal(Exception):
    """A request that the vendor refuses. The family gives the error its shape."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


@dataclass(frozen=True, slots=True)
class Route:
    """An operation of a family: generate, count or models."""

    task: str
    method: str = "POST"
    argument: str = ""  # the model, if the path names it
    stream: bool = False  # the path itself asks for a stream
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call."""

    name: str
    schema: Mapping[str, Any]
    custom: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model makes."""

    id: str
    name: str
    arguments: str  # JSON text; for a custom tool free text
    custom: bool = False


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The facts of a request that decide its answer."""

    model: str
    prompt: str  # the user's last words
    input_tokens: int
    stream: bool = False
    framing: Literal["sse", "json_array"] = "sse"  # the form of a stream
    fresh: bool = True  # the last message has words of the user, not results of tools
    images: int = 0
    tools: tuple[Tool, ...] = ()
    tool_mode: ToolMode = "auto"
    parallel: bool = True
    schema: Mapping[str, Any] | None = None  # {} = any JSON object
    thinking: bool = False
    thinking_shown: bool = True
    limit_tokens: int | None = None
    stops: tuple[str, ...] = ()
    choices: int = 1
    include_usage: bool = False
    # The request itself, for a family whose answers repeat its settings.
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Counts of tokens; `output` includes `reasoning`, `input` the tokens cached and written."""

    input: int
    output: int
    reasoning: int
    cached: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """An answer before a family encodes it; `pieces` are the deltas of the text."""

    counts: TokenCounts
    finish: Finish
    pieces: tuple[str, ...] = ()
    thoughts: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    stop_sequence: str | None = None


class Family:
    """Routes, answers and errors of one wire format."""

    name: str
    request_id_header = "x-request-id"
    last_bytes = b""  # after the last event of a stream

    def find(self, path: str, headers: Mapping[str, str]) -> Route | None:
        """Return the route of a path, or None if this family or its clients do not have it."""
        raise NotImplementedError

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> ModelRequest:
        """Read the facts of a request. Fields that do not affect the answer are not checked."""
        raise NotImplementedError

    def lookup(self, route: Route) -> dict[str, Any]:
        """Answer a request without a body: the list of models."""
        raise NotImplementedError

    def count(self, request: ModelRequest) -> dict[str, Any]:
        raise NotImplementedError

    def plain(self, request: ModelRequest, answer: ModelAnswer) -> dict[str, Any]:
        raise NotImplementedError

    def events(self, request: ModelRequest, answer: ModelAnswer) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    def encode(self, event: Mapping[str, Any]) -> bytes:
        """Encode one event of a stream."""
        return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), encode_json(event))

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        raise NotImplementedError


def encode_json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def new_id(prefix: str, size_bytes: int = 16) -> str:
    return f"{prefix}_{secrets.token_hex(size_bytes)}"


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a JSON array; none if the value is no array."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def object_of(value: Any, *names: str) -> dict[str, Any]:
    """Return the object under these nested names; {} if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def halves(text: str) -> list[str]:
    """Cut a text into the deltas of a tool call."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]

"""Requests of the matrix's cases to a model, and answers as a user of an SDK sees them.

Independent of any family; `clients/` translates them for the official SDKs.
"""

import base64
from dataclasses import dataclass, field
from typing import Any

PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(24)
PIXEL_BASE64 = base64.b64encode(PIXEL).decode()
PLACE = {
    "type": "object",
    "properties": {"harbour": {"type": "string"}, "day": {"type": "integer"}},
    "required": ["harbour", "day"],
    "additionalProperties": False,
}
KETTLE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "cups": {"type": "integer"}},
    "required": ["name", "cups"],
    "additionalProperties": False,
}
TOOLS = ("get_weather", "get_tide")


@dataclass(frozen=True)
class Call:
    """A tool call of the model."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class User:
    """A text of the user, perhaps with an image."""

    text: str
    image: bool = False


@dataclass(frozen=True)
class Model:
    """A text of the model that the client did not get in this conversation."""

    text: str


@dataclass(frozen=True)
class Result:
    """The result of a tool."""

    call: Call
    text: str
    error: bool = False


@dataclass
class Seen:
    """An answer as the SDK's user sees it; `native` goes into the next request's history.

    `usage` is (input including cache, its cache reads, its cache writes, output, its thoughts);
    None where the family does not report it.
    """

    text: str = ""
    thoughts: str = ""
    calls: list[Call] = field(default_factory=list)
    finish: str = ""
    stop: str | None = None
    refused: bool = False
    usage: tuple[int | None, ...] = ()
    model: str = ""
    request_id: str = ""
    native: Any = None


@dataclass(frozen=True)
class Want:
    """A request: turns (`User`, `Model`, `Seen`, lists of `Result`) and its options."""

    model: str
    turns: tuple[Any, ...]
    system: str = ""
    tools: bool = False
    force: str = ""
    schema: bool = False
    thinking: bool = False
    stop: str = ""
    limit: int = 2000
    temperature: float | None = None

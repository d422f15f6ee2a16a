"""What the cases of the matrix say to a model, and what a user of an SDK sees of its answer.

Free of any family: `clients/` say it in the words of the official SDKs.
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
    """A tool that the model wants called."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class User:
    """Words of the user, perhaps with an image."""

    text: str
    image: bool = False


@dataclass(frozen=True)
class Model:
    """Words of the model that its client has from elsewhere."""

    text: str


@dataclass(frozen=True)
class Result:
    """What a tool has answered."""

    call: Call
    text: str
    error: bool = False


@dataclass
class Seen:
    """An answer as the SDK's user has it; `native` is what goes into the next request's history.

    `usage` is (input with all of the cache, of it read, of it written, output, of it thoughts);
    None where the family does not say it.
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
    """A request: turns (`User`, `Model`, `Seen`, lists of `Result`) and what else is asked."""

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

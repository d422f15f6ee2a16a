"""Turns of a conversation and their parts: texts, media, calls, results, thoughts.

Only values. They are Structs because dataclasses take six times as long to create.
"""

from typing import Any, Literal

from adapters.json.jsonio import Struct


class CacheMark(Struct, frozen=True, gc=False):
    """A request to cache everything up to here. None: for the vendor's default time."""

    ttl_s: int | None = None


class Citation(Struct, frozen=True, gc=False):
    """A source of a text: its place on the web, and the characters of the text that it supports."""

    url: str
    title: str = ""
    start: int | None = None
    end: int | None = None
    quoted: str = ""


class Text(Struct, frozen=True):
    """Plain text."""

    text: str
    cache: CacheMark | None = None
    citations: tuple[Citation, ...] = ()


class Refusal(Struct, frozen=True, gc=False):
    """The model's own text of a refusal."""

    text: str


class Media(Struct, frozen=True):
    """An image, recording, document or video, given by exactly one of ``data``, ``url``, ``ref``.

    ``data`` is base64 in the standard alphabet with padding. For a text document it is the text
    itself, with the MIME type text/plain and ``plain`` true. ``ref`` is the vendor's id of an
    uploaded file. ``mime`` is lower case, empty when unknown. ``path``: the place in the client's
    body ("messages[2].content[1]").
    """

    kind: Literal["image", "audio", "file", "video"]
    mime: str = ""
    data: str = ""
    url: str = ""
    ref: str = ""
    name: str = ""
    detail: str = ""
    plain: bool = False
    cache: CacheMark | None = None
    path: str = ""


class ToolCall(Struct, frozen=True):
    """A call of a tool by the model.

    ``arguments`` is the JSON text of an object, or free text for a ``custom`` tool. ``namespace``:
    the group that the tool belongs to, in clients that group tools.
    """

    id: str
    name: str
    arguments: str
    custom: bool = False
    namespace: str = ""
    cache: CacheMark | None = None


class ToolResult(Struct, frozen=True):
    """The result of a tool: texts and media. ``name`` is empty if the client's family does not send
    it here; ``custom`` is as in the call."""

    call_id: str
    parts: "tuple[Text | Media, ...]"
    name: str = ""
    error: bool = False
    custom: bool = False
    cache: CacheMark | None = None


class Reasoning(Struct, frozen=True, gc=False):
    """The visible part of a model's thought.

    ``opaque``: the data that brings this part back to the model that made it (a signature,
    encrypted content). In an answer it is text that the upstream side made and can read again. In a
    client's request it is what the client sent in the family's field for such data.
    """

    text: str
    summary: bool = False
    opaque: str = ""


class Hosted(Struct, frozen=True):
    """A call or result of a tool that the vendor runs, as it was in the client's body."""

    kind: str
    raw: dict[str, Any]
    path: str = ""


Part = Text | Refusal | Media | ToolCall | ToolResult | Reasoning | Hosted
Role = Literal["system", "user", "assistant"]


class Turn(Struct, frozen=True):
    """Consecutive parts of one speaker. Tool results belong to the user's turns."""

    role: Role
    parts: tuple[Part, ...]

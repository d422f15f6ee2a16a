"""Turns of a conversation and their parts: texts, media, calls, results, thoughts.

Values only. Struct, not dataclasses, which take six times as long to make.
"""

from typing import Any, Literal

from adapters.json.jsonio import Struct


class CacheMark(Struct, frozen=True, gc=False):
    """A request to cache everything up to here, for this long; None: the vendor's own time."""

    ttl_s: int | None = None


class Citation(Struct, frozen=True, gc=False):
    """A source of a text: where it is on the web, and the characters of the text it is for."""

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
    """The model's own text of refusing."""

    text: str


class Media(Struct, frozen=True):
    """An image, a recording, a document or a film, by exactly one of ``data``, ``url``, ``ref``.

    ``data`` is base64 in the standard alphabet with padding; of a text document it is its text,
    with the MIME type text/plain, and ``plain`` true. ``ref`` is the vendor's id of an uploaded
    file. ``mime`` is lower case, empty when not known. ``path``: where it stands in the client's
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

    ``arguments`` is JSON text of an object, of a ``custom`` tool free text. ``namespace``: the
    group of tools it belongs to, which some clients have.
    """

    id: str
    name: str
    arguments: str
    custom: bool = False
    namespace: str = ""
    cache: CacheMark | None = None


class ToolResult(Struct, frozen=True):
    """The result of a tool: texts and media. ``name`` is empty where the client's family has none
    here; ``custom`` as of the call."""

    call_id: str
    parts: "tuple[Text | Media, ...]"
    name: str = ""
    error: bool = False
    custom: bool = False
    cache: CacheMark | None = None


class Reasoning(Struct, frozen=True, gc=False):
    """A thought of the model, as far as it is visible.

    ``opaque``: what brings this part back to the model that made it (a signature, encrypted
    content). Of an answer: text of the upstream's own making, which its encoder can read again. Of
    a client's request: what the client sent in the place where its family has such things.
    """

    text: str
    summary: bool = False
    opaque: str = ""


class Hosted(Struct, frozen=True):
    """A call or result of a tool that the vendor runs itself, as it stood in the client's body."""

    kind: str
    raw: dict[str, Any]
    path: str = ""


Part = Text | Refusal | Media | ToolCall | ToolResult | Reasoning | Hosted
Role = Literal["system", "user", "assistant"]


class Turn(Struct, frozen=True):
    """Consecutive parts of one speaker. Tool results are parts of the user's turns."""

    role: Role
    parts: tuple[Part, ...]

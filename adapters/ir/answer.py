"""An answer, either whole or as the events of a stream.

A stream is a sequence of slots (a text, a thought, a call), each ``Opened``, any number of
``Delta``, ``Closed``. Several slots may be open at the same time; a picture stands between slots.
``Finished`` comes once for each choice. Events carry no token counts: the upstream's tap reads
those.
"""

from typing import Literal

from adapters.ir.parts import Citation, Part
from adapters.json.jsonio import Struct

# Why an answer ended. ``tools``: it calls tools; ``filter``: the vendor withheld the rest;
# ``refusal``: the model declined; ``pause``: the vendor continues in another request;
# ``context_full``: the model's context window is full; ``error``: the model failed midway.
Finish = Literal[
    "stop", "stop_sequence", "length", "tools", "filter", "refusal", "pause", "context_full",
    "error",
]  # fmt: skip
SlotKind = Literal["text", "reasoning", "call", "refusal"]


MAX_LOGPROBS = 65_536  # of an answer; more tokens than any unstreamed answer has
MAX_CITATIONS = 1000  # of one text


class Logprob(Struct, frozen=True):
    """A token of the text with its natural-logarithm probability and its alternatives."""

    token: str
    logprob: float
    top: "tuple[Logprob, ...]" = ()


class Choice(Struct, frozen=True):
    """One of the answers. ``detail``: the vendor's own reason to end (such as a safety
    category)."""

    parts: tuple[Part, ...]
    finish: Finish = "stop"
    stop_sequence: str | None = None
    detail: str = ""
    logprobs: tuple[Logprob, ...] = ()


class Opened(Struct, frozen=True, gc=False):
    """The start of a slot. The last fields belong to calls, ``summary`` to reasoning."""

    slot: int
    kind: SlotKind
    choice: int = 0
    id: str = ""
    name: str = ""
    custom: bool = False
    namespace: str = ""
    summary: bool = False


class Delta(Struct, frozen=True):
    """More of a slot's text, or of a call's arguments."""

    slot: int
    text: str
    logprobs: tuple[Logprob, ...] = ()


class Sealed(Struct, frozen=True, gc=False):
    """The ``opaque`` of an open reasoning slot (see ``parts.Reasoning``); sent once."""

    slot: int
    opaque: str


class Cited(Struct, frozen=True, gc=False):
    """A source of an open text slot."""

    slot: int
    citation: Citation


class Pictured(Struct, frozen=True, gc=False):
    """A complete picture of the answer, in base64. It has no slot."""

    mime: str
    data: str
    choice: int = 0
    slot: int = -1

    @property
    def url(self) -> str:
        return f"data:{self.mime};base64,{self.data}"

    @property
    def markdown(self) -> str:
        """Return the picture as Markdown text, for families whose answers have no pictures."""
        return f"![picture]({self.url})"


class Closed(Struct, frozen=True, gc=False):
    """The end of a slot."""

    slot: int


class Finished(Struct, frozen=True, gc=False):
    """The end of a choice; all its slots are closed."""

    finish: Finish
    choice: int = 0
    stop_sequence: str | None = None
    detail: str = ""


Event = Opened | Delta | Sealed | Cited | Closed | Pictured | Finished

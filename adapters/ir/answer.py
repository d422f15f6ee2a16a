"""An answer, whole and as the events of a stream.

A stream is a sequence of slots (a text, a thought, a call): ``Opened``, any number of ``Delta`` s,
``Closed``. Slots may be open at the same time; a picture stands between them. ``Finished`` comes
once for each choice. No event has the number of tokens: that is read by the upstream's tap.
"""

from typing import Literal

from adapters.ir.parts import Citation, Part
from adapters.json.jsonio import Struct

# Why an answer ended. ``tools``: calls were made; ``filter``: the vendor held it back; ``refusal``:
# the model declined; ``pause``: the vendor goes on with another request; ``context_full``: the
# model's window is full; ``error``: the model failed in the middle.
Finish = Literal[
    "stop", "stop_sequence", "length", "tools", "filter", "refusal", "pause", "context_full",
    "error",
]  # fmt: skip
SlotKind = Literal["text", "reasoning", "call", "refusal"]


MAX_LOGPROBS = 65_536  # of an answer; more tokens than any that is not a stream
MAX_CITATIONS = 1000  # of a text


class Logprob(Struct, frozen=True):
    """A token of the text and how probable it was (natural logarithm), with its alternatives."""

    token: str
    logprob: float
    top: "tuple[Logprob, ...]" = ()


class Choice(Struct, frozen=True):
    """One of the answers; ``detail``: the vendor's own reason (a category of safety)."""

    parts: tuple[Part, ...]
    finish: Finish = "stop"
    stop_sequence: str | None = None
    detail: str = ""
    logprobs: tuple[Logprob, ...] = ()


class Opened(Struct, frozen=True, gc=False):
    """The beginning of a slot; the last fields are of a call, ``summary`` of reasoning."""

    slot: int
    kind: SlotKind
    choice: int = 0
    id: str = ""
    name: str = ""
    custom: bool = False
    namespace: str = ""
    summary: bool = False


class Delta(Struct, frozen=True):
    """More of a slot's text; of a call, more of its arguments."""

    slot: int
    text: str
    logprobs: tuple[Logprob, ...] = ()


class Sealed(Struct, frozen=True, gc=False):
    """The ``opaque`` of a reasoning slot that is open (see ``parts.Reasoning``); once."""

    slot: int
    opaque: str


class Cited(Struct, frozen=True, gc=False):
    """A source of a text slot that is open."""

    slot: int
    citation: Citation


class Pictured(Struct, frozen=True, gc=False):
    """A picture of the answer, whole: base64. It has no slot."""

    mime: str
    data: str
    choice: int = 0
    slot: int = -1

    @property
    def url(self) -> str:
        return f"data:{self.mime};base64,{self.data}"

    @property
    def markdown(self) -> str:
        """Return a text that has the picture, for families whose answers have none."""
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

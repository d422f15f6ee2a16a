"""Compaction by the model itself: a summary, for upstreams without a compaction endpoint or item.

The request gets one more text. Only the text of the answer is kept, and sealed. Imported by
``translate``.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from adapters.family.opaque import Origin, wrap_summary
from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Closed, Delta, Event, Finished, Opened, Sealed
from adapters.ir.parts import Reasoning, Text, Turn
from adapters.ir.request import Output, Request, ToolChoice
from adapters.json.structure import Steps

INSTRUCTION = (
    "Summarize this conversation so that another model can continue from the summary alone, without"
    " the messages above. State what the user wants, with their own words where these matter; what"
    " was decided and why; what was done, with the names of files, commands and values; what"
    " failed; what remains to be done, and the next step. Answer with the summary only."
)


def with_instruction(request: Request) -> Request:
    """Return the request for a summary, without tool calls and structured output."""
    *turns, last = request.turns or (Turn("user", ()),)
    if last.role == "user":
        turns.append(Turn("user", (*last.parts, Text(INSTRUCTION))))
    else:
        turns += [last, Turn("user", (Text(INSTRUCTION),))]
    return replace(
        request,
        turns=tuple(turns),
        choice=ToolChoice("none") if request.tools else None,
        output=Output(),
        stop=(),
        asks=tuple(ask for ask in request.asks if ask.feature != "prefill"),
    )


class SummaryRestorer:
    """The conversion of one answer into its sealed text (see ``restore.Restorer``): reasoning
    without text, which the client's encoder writes as a compaction."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._slots: set[int] = set()  # of texts
        self._pieces: list[str] = []

    def choice(self, choice: Choice) -> Steps[Choice]:
        """Return the choice with the sealed text. Raises Fault UPSTREAM_INVALID if there is no
        text."""
        yield False
        self._pieces = [part.text for part in choice.parts if isinstance(part, Text)]
        return replace(choice, parts=(Reasoning("", opaque=self._sealed()),))

    def events(self, events: Iterable[Event]) -> list[Event]:
        """Return the events for the client, all of them at the end. Raises Fault UPSTREAM_INVALID
        if there was no text."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, Opened) and event.kind == "text":
                self._slots.add(event.slot)
            elif isinstance(event, Delta) and event.slot in self._slots:
                self._pieces.append(event.text)
            elif isinstance(event, Finished):
                out += [Opened(0, "reasoning"), Sealed(0, self._sealed()), Closed(0), event]
        return out

    def repeats(self, event: Event) -> bool:
        """Return false: every text is gathered."""
        return False

    def _sealed(self) -> str:
        text = "".join(self._pieces).strip()
        if not text:
            raise Fault(Condition.UPSTREAM_INVALID)
        return wrap_summary(text, self._origin)

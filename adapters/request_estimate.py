"""An estimate of the tokens of an ``adapters.ir`` request, for upstreams that cannot count them.

Only texts, schemas and media count; the rest differs between families. Imported by the relay.
"""

from collections.abc import Iterator

from adapters.family.estimate import (
    IMAGE_TYPICAL_TOKENS,
    estimate_tokens,
    output_weight,
    tokens_of_weight,
)
from adapters.ir.parts import Hosted, Media, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from adapters.ir.request import Request, Tool
from adapters.json.jsonio import dumps
from adapters.json.structure import Steps

TURN_TOKENS = 4  # for the vendors' marks around each turn
# This many characters are counted by kinds of words. The rest is weighed and scaled by the same
# ratio, because coding clients count long conversations many times a second.
_COUNTED_CHARS = 16_384


def estimate_request(request: Request) -> Steps[int]:
    """Estimate the input tokens of a request, in steps, with a yield after each turn."""
    counter = _Counter()
    for part in request.system:
        counter.add_part(part)
    for tool in request.tools:
        counter.add(tool.name, tool.description, _schema(tool))
    if request.output.schema is not None:
        counter.add(dumps(request.output.schema).decode())
    for turn in request.turns:
        counter.tokens += TURN_TOKENS
        for part in turn.parts:
            counter.add_part(part)
        yield False
    return counter.total


class _Counter:
    """A running sum of texts and media."""

    def __init__(self) -> None:
        self.tokens = 0  # of everything but text
        self._counted = 0  # tokens of the counted texts
        self._counted_weight = 0
        self._counted_chars = 0
        self._weight = 0  # of the texts that were not counted

    @property
    def total(self) -> int:
        """All tokens so far."""
        rest = tokens_of_weight(self._weight)
        if rest and self._counted_weight:
            rest = rest * self._counted // max(1, tokens_of_weight(self._counted_weight))
        return self.tokens + self._counted + rest

    def add(self, *texts: str) -> None:
        """Count texts."""
        for text in filter(None, texts):
            left = max(0, _COUNTED_CHARS - self._counted_chars)
            counted, weighed = text[:left], text[left:]
            if counted:
                self._counted += estimate_tokens(counted)
                self._counted_weight += output_weight(counted)
                self._counted_chars += len(counted)
            if weighed:
                self._weight += output_weight(weighed)

    def add_part(self, part: Part) -> None:
        """Count a part of a turn."""
        if isinstance(part, Media) and not part.plain:
            self.tokens += IMAGE_TYPICAL_TOKENS
        else:
            self.add(*_texts(part))
        if isinstance(part, ToolResult):
            for inner in part.parts:
                self.add_part(inner)


def _texts(part: Part) -> Iterator[str]:
    if isinstance(part, (Text, Refusal, Reasoning)):
        yield part.text
    elif isinstance(part, Media):
        yield part.data
    elif isinstance(part, ToolCall):
        yield part.name
        yield part.arguments
    elif isinstance(part, ToolResult):
        yield part.name
    elif isinstance(part, Hosted):
        yield dumps(part.raw).decode()


def _schema(tool: Tool) -> str:
    return "" if tool.schema is None else dumps(tool.schema).decode()

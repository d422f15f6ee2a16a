"""The conversation of Try it: what a page carries from one answer to the next, and how it is shown.

The page keeps the conversation in a form field; nothing is stored on the server. What a browser
sends back is validated and shown as text, so a user who edits it only changes what that user sees.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

import msgspec
from msgspec import Struct

from handlers.hub.web.base import invalid
from handlers.hub.web.formats import amounts_lacking, failure_reason, shape_of
from operations.chat import ChatTurn
from store.values.usage_record import OUTCOMES

MAX_TURNS = 100
MAX_BYTES = 768 << 10
_FENCE = re.compile(r"^```[^\n]*\n(.*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")


class CallFacts(Struct, frozen=True, omit_defaults=True):
    """The facts of an answer, from its usage record if there is one, and as its client received it.
    `body`: that of an error. `complete` False: the answer was truncated."""

    status: int | None = None
    id: str | None = None
    outcome: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: str | None = None
    ttft_ms: int | None = None
    total_ms: int | None = None
    complete: bool = True
    body: str | None = None
    headers: dict[str, str] = {}
    error: str | None = None

    @property
    def shape(self) -> str:
        """Return the shape of the outcome."""
        return shape_of(self.known_outcome)

    @property
    def known_outcome(self) -> str:
        """Return the outcome; without a usage record, the one that the status suggests."""
        if self.outcome in OUTCOMES:
            return self.outcome
        if self.status is None:
            return "internal_error"
        if self.status < 400:
            return "ok" if self.complete else "upstream_truncated"
        return "refused" if self.status < 500 else "upstream_error"

    @property
    def worked(self) -> bool:
        """Return whether the answer is complete."""
        return self.known_outcome == "ok"

    def reason(self, words: Mapping[str, str]) -> str:
        """Return why the call failed, in the Hub's words."""
        if self.error_code is None:
            unheard = "try.no_answer" if self.status is None else "try.no_record"
            return words[unheard]
        return failure_reason(words, self.error_code, self.error_message) or self.error_code

    @property
    def says_amounts(self) -> bool:
        """Return whether the reason includes the amounts of the error message."""
        return amounts_lacking(self.error_message) is not None

    @property
    def as_client(self) -> str:
        """Return status line, headers and body, as a client receives them."""
        head = [f"HTTP {self.status}", *(f"{name}: {v}" for name, v in self.headers.items())]
        return "\n".join(head) + f"\n\n{pretty(self.body or '')}"

    @property
    def tokens_per_s(self) -> int | None:
        """Return the tokens per second after the first byte."""
        if not self.output_tokens or self.total_ms is None or self.ttft_ms is None:
            return None
        rest_ms = self.total_ms - self.ttft_ms
        return round(self.output_tokens * 1000 / rest_ms) if rest_ms > 0 else None


class ShownTurn(Struct, frozen=True, omit_defaults=True):
    """A turn on the page. `call`: the facts of an answer."""

    role: Literal["user", "assistant"]
    text: str
    model: str = ""
    call: CallFacts | None = None

    @property
    def blocks(self) -> list["Block"]:
        """Return the text as blocks."""
        return list(_blocks(self.text))


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph as alternating pieces of text and code, or one block of code."""

    pieces: Sequence[str]
    is_code: bool


def _blocks(text: str) -> Iterator[Block]:
    at = 0
    for fence in _FENCE.finditer(text):
        if plain := text[at : fence.start()].strip("\n"):
            yield Block(_INLINE.split(plain), is_code=False)
        yield Block((fence[1].rstrip("\n"),), is_code=True)
        at = fence.end()
    if plain := text[at:].strip("\n"):
        yield Block(_INLINE.split(plain), is_code=False)


@dataclass(frozen=True, slots=True)
class ConversationSums:
    """The sums over a conversation's calls. `refused`: the number of refused calls; `cost`: decimal
    text."""

    calls: int
    refused: int
    input_tokens: int
    output_tokens: int
    cost: str


class Conversation(Struct, frozen=True):
    """The turns on a page."""

    turns: tuple[ShownTurn, ...] = ()

    @classmethod
    def read(cls, text: str) -> "Conversation":
        """Read the form field. Raises Failure."""
        if not text.strip():
            return cls()
        try:
            turns = msgspec.json.decode(text[:MAX_BYTES], type=tuple[ShownTurn, ...])
        except (msgspec.DecodeError, UnicodeError):
            raise invalid("turns", "the conversation cannot be read; clear it") from None
        if len(turns) > MAX_TURNS:
            raise invalid("turns", f"a conversation has at most {MAX_TURNS} turns; clear it")
        return cls(turns)

    @property
    def text(self) -> str:
        """Return the value for the form field."""
        return msgspec.json.encode(self.turns).decode()

    @property
    def pair(self) -> tuple[ShownTurn | None, Sequence[ShownTurn]]:
        """Return the last question and its answers."""
        for at in range(len(self.turns) - 1, -1, -1):
            if self.turns[at].role == "user":
                return self.turns[at], self.turns[at + 1 :]
        return None, ()

    def add(self, *turns: ShownTurn) -> "Conversation":
        """Return the conversation with additional turns."""
        return Conversation((*self.turns, *turns))

    def without_last_answer(self) -> "Conversation":
        """Return the conversation without the last question and its answers, so that it can be
        asked again."""
        question, answers = self.pair
        return Conversation(self.turns[: len(self.turns) - len(answers) - (question is not None)])

    def chat_turns(self, prompt: str) -> list[ChatTurn]:
        """Return the turns to send to a model: each question with its first non-empty answer, then
        `prompt`."""
        turns: list[ChatTurn] = []
        for turn in self.turns:
            if turn.role == "user":
                if turns and turns[-1].role == "user":
                    turns.pop()  # the question had no answer
                turns.append(ChatTurn("user", turn.text))
            elif turns and turns[-1].role == "user" and turn.text:
                turns.append(ChatTurn("assistant", turn.text))
        if turns and turns[-1].role == "user":
            turns.pop()
        return [*turns, ChatTurn("user", prompt)]

    @property
    def sums(self) -> ConversationSums:
        """Return the sums over the conversation's calls."""
        calls = [turn.call for turn in self.turns if turn.call is not None]
        return ConversationSums(
            len(calls),
            sum(call.known_outcome == "refused" for call in calls),
            sum(call.input_tokens or 0 for call in calls),
            sum(call.output_tokens or 0 for call in calls),
            str(sum((_amount(call.cost) for call in calls), Decimal(0))),
        )


def _amount(text: str | None) -> Decimal:
    try:
        amount = Decimal(text or 0)
    except InvalidOperation:
        return Decimal(0)
    return amount if amount.is_finite() else Decimal(0)


def pretty(body: str) -> str:
    """Return a JSON body indented, any other body unchanged."""
    try:
        return msgspec.json.format(body, indent=2)
    except (msgspec.DecodeError, ValueError):
        return body


@dataclass(frozen=True, slots=True)
class Remedy:
    """A remedy for a failed answer: a button of the form with the value `action`, or a link."""

    word: str
    action: str = ""
    href: str = ""


_AGAIN, _PLAIN = Remedy("try.again", "again"), Remedy("try.plain", "plain")
_CLEAR = Remedy("try.clear", "clear")
_MODELS = Remedy("nav.models", href="/models")
_REMEDIES: Mapping[str, tuple[Remedy, ...]] = {
    "insufficient_quota": (Remedy("redeem_code", href="/wallet#redeem"), _AGAIN),
    "subscription_quota_exceeded": (
        Remedy("try.change_key", href="/keys/{key}/edit"),
        Remedy("nav.wallet", href="/wallet"),
    ),
    "entry_point_not_allowed": (Remedy("try.native_entry", "native"),),
    "model_not_found": (Remedy("try.native_entry", "native"), _MODELS),
    "ip_not_allowed": (Remedy("try.change_key", href="/keys/{key}/edit"),),
    "api_key_disabled": (Remedy("try.see_key", href="/keys/{key}"),),
    "api_key_expired": (Remedy("try.change_key", href="/keys/{key}/edit"),),
    "feature_not_allowed": (_PLAIN,),
    "feature_unpriced": (_PLAIN,),
    "invalid_type": (_PLAIN,),
    "unsupported_parameter": (_PLAIN,),
    "upstream_invalid_request": (_PLAIN, _AGAIN),
    "context_length_exceeded": (_CLEAR,),
    "missing_api_key": (_AGAIN,),
}
"""By error code; the default is to ask again."""


def remedies_of(turn: ShownTurn) -> Sequence[Remedy]:
    """Return the remedies for a failed answer; none for a successful one."""
    call = turn.call
    if call is None or call.worked:
        return ()
    if turn.text:  # it was truncated
        return (Remedy("try.go_on", "go_on"), _AGAIN)
    return _REMEDIES.get(call.error_code or "", (_AGAIN,))

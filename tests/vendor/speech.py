"""The answers that a script requests: numbered deltas, floods, refusals, its own usage counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from demo import speech as demo
from demo.family import ModelAnswer, ModelRequest, TokenCounts
from demo.speech import BYTES_A_TOKEN, count_tokens
from tests.vendor.directives import Script, without_directives
from tests.vendor.sessions import Turn

ABSURD_TOKENS = 10**15
DECLINED = "I am sorry, the demo will not answer that."
FLOOD_PIECE_BYTES = 4096
MEBIBYTE = 1024 * 1024


def compose(request: ModelRequest, script: Script, turn: Turn | None = None) -> ModelAnswer:
    """Compose the answer to a request, as far as script and session do not determine it."""
    answer = _answer(request, script, turn)
    return replace(answer, counts=_counts(answer.counts, script))


def _answer(request: ModelRequest, script: Script, turn: Turn | None) -> ModelAnswer:
    thoughts, reasoning = demo.thoughts_of(request)
    if script.flood is not None:
        count = script.flood * MEBIBYTE // FLOOD_PIECE_BYTES
        pieces = ("Here it comes. ", *("z" * FLOOD_PIECE_BYTES,) * count)
        output = reasoning + sum(map(len, pieces)) // BYTES_A_TOKEN
        counts = TokenCounts(request.input_tokens, output, reasoning)
        return ModelAnswer(counts, "stop", pieces, thoughts)
    if script.refusal:
        output = reasoning + count_tokens(DECLINED)
        counts = TokenCounts(request.input_tokens, output, reasoning)
        return ModelAnswer(counts, "stop", pieces_of(DECLINED, script), thoughts)
    if turn is not None:
        calls = turn.calls
    else:
        chosen = demo.chosen_tools(request, all_tools=script.tools)
        calls = tuple(map(demo.call_of, chosen))
    if calls:
        return demo.answer_with_calls(request, calls)
    words = replace(request, prompt=without_directives(request.prompt))
    text = demo.text_of(words) if turn is None else turn.say
    if script.text is not None:
        text = script.text.encode("utf-8", "replace").decode()
    return demo.answer_with_text(request, pieces_of(text, script))


def _counts(counts: TokenCounts, script: Script) -> TokenCounts:
    if script.usage == "absurd":
        return TokenCounts(ABSURD_TOKENS, ABSURD_TOKENS, 0)
    if script.tokens is not None:
        whole, cached, written, output, reasoning = script.tokens
        return TokenCounts(whole, output, reasoning, cached, written)
    return counts


def pieces_of(text: str, script: Script) -> tuple[str, ...]:
    """Cut a text into deltas of the script's number and size, by default of a few words each."""
    if script.chunks is not None and script.text is None:
        return tuple(_numbered(index, script.bytes) for index in range(script.chunks))
    if script.chunks is not None:
        size = -(-len(text) // script.chunks) or 1
        return tuple(text[at : at + size] for at in range(0, len(text), size))
    if script.bytes is not None:
        return tuple(_cut_bytes(text, script.bytes))
    return demo.pieces_of(text)


def _numbered(index: int, size_bytes: int | None) -> str:
    """Return a delta that contains its number, so that a lost or duplicate delta shows."""
    piece = f"{index} "
    return piece if size_bytes is None else piece.ljust(size_bytes, "x")[:size_bytes]


def _cut_bytes(text: str, size_bytes: int) -> Iterable[str]:
    piece, piece_bytes = "", 0
    for character in text:
        width = len(character.encode("utf-8", "surrogatepass"))
        if piece and piece_bytes + width > size_bytes:
            yield piece
            piece, piece_bytes = "", 0
        piece += character
        piece_bytes += width
    if piece:
        yield piece

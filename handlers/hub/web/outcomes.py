"""How pages show the end of a call: the shape of each outcome; words are `codes.outcome_…`."""

from collections.abc import Mapping

SHAPES: Mapping[str, str] = {
    "ok": "ok",
    "refused": "idle",
    "client_gone": "gone",
    "upstream_truncated": "warn",
}
"""Of outcomes that are no plain failure; all others are `bad`."""


def shape_of(outcome: str) -> str:
    """The shape of an outcome, as the part State takes it."""
    return SHAPES.get(outcome, "bad")


def code_word(words: Mapping[str, str], code: str | None) -> str | None:
    """The short words of an error code; the code itself where there are none; None for none."""
    return words.get(f"codes.{code}", code) if code else None

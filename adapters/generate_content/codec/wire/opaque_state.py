"""Signatures of thoughts on their way through the hub: which part of a turn each belongs to.

Imported by ``codec``.
"""

from typing import Literal

# The part that has the signature: the next call, the text before, or the thought itself.
Place = Literal["call", "text", "thought"]

# Documented for calls that another model has made: models that sign their calls want one there.
BYPASS = "skip_thought_signature_validator"


def sealed(place: Place, signature: str) -> str:
    """A signature with its place, as the hub has it."""
    return f"{place}:{signature}"


def unsealed(opaque: str) -> tuple[Place, str] | None:
    """The place and the signature; None for what this family has not made."""
    place, colon, signature = opaque.partition(":")
    if not colon or not signature:
        return None
    if place == "call":
        return "call", signature
    if place == "text":
        return "text", signature
    return ("thought", signature) if place == "thought" else None

"""Opaque state in the history of a translated request: what goes back to its maker, what goes.

Imported by ``translate``.
"""

from msgspec.structs import replace

from adapters.ir.parts import Part, Reasoning, Turn
from adapters.ir.request import Request
from adapters.opaque import Origin, unwrap


def restored(request: Request, origin: Origin) -> Request:
    """The request with the opaque state that ``origin`` has made, as it made it, and no other.

    A thought without it keeps its text: whether a model wants that back is for its encoder to say.
    """
    return replace(request, turns=tuple(_turn(turn, origin) for turn in request.turns))


def _turn(turn: Turn, origin: Origin) -> Turn:
    if turn.role != "assistant" or not any(_sealed(part) for part in turn.parts):
        return turn
    return Turn(turn.role, tuple(_part(part, origin) for part in turn.parts))


def _sealed(part: Part) -> bool:
    return isinstance(part, Reasoning) and bool(part.opaque)


def _part(part: Part, origin: Origin) -> Part:
    if not (isinstance(part, Reasoning) and part.opaque):
        return part
    return replace(part, opaque=unwrap(part.opaque, origin) or "")

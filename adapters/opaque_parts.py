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
    if not is_sealed(request):
        return request
    return replace(request, turns=tuple(_turn(turn, origin) for turn in request.turns))


def unsealed(request: Request) -> Request:
    """The request without any opaque state, for an upstream that has refused its own."""
    return replace(
        request,
        turns=tuple(
            Turn(turn.role, tuple(map(_unsealed, turn.parts)))
            if any(_sealed(part) for part in turn.parts)
            else turn
            for turn in request.turns
        ),
    )


def is_sealed(request: Request) -> bool:
    """Whether some part of the request has opaque state."""
    return any(_sealed(part) for turn in request.turns for part in turn.parts)


def _turn(turn: Turn, origin: Origin) -> Turn:
    if not any(_sealed(part) for part in turn.parts):
        return turn
    return Turn(turn.role, tuple(_part(part, origin) for part in turn.parts))


def _sealed(part: Part) -> bool:
    return isinstance(part, Reasoning) and bool(part.opaque)


def _unsealed(part: Part) -> Part:
    return replace(part, opaque="") if isinstance(part, Reasoning) and part.opaque else part


def _part(part: Part, origin: Origin) -> Part:
    if not (isinstance(part, Reasoning) and part.opaque):
        return part
    return replace(part, opaque=unwrap(part.opaque, origin) or "")

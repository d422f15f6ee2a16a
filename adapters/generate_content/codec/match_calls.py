"""Which call a function's response answers. Imported by this folder's ``decode_turns``."""

from collections import deque

from adapters.ir.parts import ToolCall

NO_CALL = 2**62  # the place of a result that answers none: behind all others


class Calls:
    """The calls of one turn of the model, each answered once: by id, else by name in their order.

    Each response is matched at once, however many calls there are.
    """

    def __init__(self) -> None:
        self._calls: list[ToolCall] = []
        self._of_id: dict[str, deque[int]] = {}
        self._of_name: dict[str, deque[int]] = {}
        self._all: deque[int] = deque()
        self._answered: set[int] = set()

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: ToolCall) -> None:
        """The next call of the turn."""
        place = len(self._calls)
        self._calls.append(call)
        self._of_id.setdefault(call.id, deque()).append(place)
        self._of_name.setdefault(call.name, deque()).append(place)
        self._all.append(place)

    def answer(self, name: str, given_id: str) -> tuple[int, ToolCall | None]:
        """The call that is answered, and its place among the others; (NO_CALL, None) when there is
        none. A response with neither name nor id is of the first that is open."""
        listed = [self._of_id.get(given_id), self._of_name.get(name)]
        if not name and not given_id:
            listed = [self._all]
        for places in listed:
            while places:
                place = places.popleft()
                if place not in self._answered:
                    self._answered.add(place)
                    return place, self._calls[place]
        return NO_CALL, None

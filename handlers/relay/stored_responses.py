"""Things that vendors keep: calls that name one go to the channel and upstream key that made it.

Only its user finds it, as soon as the client can read its id. This worker's own are in its memory,
those of the node's other workers in the memory that they share (recent_responses.py); all others
are looked up in the store, which has what the writers have applied. Imported by admission, records.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager

from handlers.relay.recent_responses import FreshResponses, Owned
from store.calls.stored_responses import Found, mark_of
from store.values.errors import StoreUnavailable
from store.values.usage_record import StoredAt

MAX_KNOWN = 20_000  # some 8 MB; the others are in the store
LOOK_UP_S = 1.5  # for all ids of a call, queueing included; a writer that is not busy needs 0.2 s
LOOK_TWICE_S = 0.2  # for an older response, when another user got the same id lately
PAUSES_S = (0.1, 0.2, 0.4, 0.7)  # between the queries of a look-up
LOOK_UPS_PER_USER = 8  # at one time, so that one user's junk ids delay nobody else
WAITING_PER_USER_MAX = 100  # look-ups queued behind those; further calls are refused

Look = Callable[[str, Sequence[str], int], Found]


class StoredResponses:
    """Which channel and upstream key have made a user's response. `look` is find_stored: it blocks
    and is called in `executor`; `clock_ms` is the wall clock. `refuse`: unknown ids are refused;
    otherwise they go to the only channel there is, if there is one.
    """

    def __init__(
        self,
        look: Look,
        executor: Executor,
        clock_ms: Callable[[], int],
        fresh: FreshResponses,
        refuse: bool = True,
    ) -> None:
        self._look = look
        self._executor = executor
        self._clock_ms = clock_ms
        self._fresh = fresh
        self.refuse = refuse
        self._known: OrderedDict[str, tuple[Owned, ...]] = OrderedDict()
        self._lines: dict[str, _Line] = {}

    def note(self, user_id: str, stored: StoredAt) -> None:
        """The user is about to read the id of a response that is kept at `stored`."""
        self._remember(user_id, stored)
        self._fresh.put(user_id, stored)

    def forget(self, user_id: str, response_id: str) -> StoredAt:
        """The vendor has deleted a response of the user: what its record says of it."""
        mark = mark_of(response_id)
        others = tuple(one for one in self._known.pop(mark, ()) if one[0] != user_id)
        if others:
            self._known[mark] = others
        self._fresh.drop(user_id, mark)
        return StoredAt(mark)

    async def find(self, user_id: str, ids: Sequence[str]) -> list[StoredAt | None]:
        """Return where things of a user are, in the order of their ids: with no channel, what is
        another user's; None: nobody has been given the id. One look-up for those that are not in
        memory.
        Raises StoreUnavailable when only the store could tell, and is away or has yet to be told.
        """
        marks = [mark_of(one) for one in ids]
        places = {mark: self._in_memory(user_id, mark) for mark in marks}
        missing = [mark for mark, place in places.items() if place is None or not place.channel_id]
        if not missing:
            return [places[mark] for mark in marks]
        # Vendors may give an id twice: the store knows whether this user has an older one of it.
        owned = all(places[mark] is not None for mark in missing)
        pauses_s, within_s = ((), LOOK_TWICE_S) if owned else (PAUSES_S, LOOK_UP_S)
        # A task: asyncio.timeout needs one, and handlers run without.
        look_up = asyncio.create_task(
            self._look_up(user_id, missing, [m for m in missing if places[m]], pauses_s, within_s)
        )
        try:
            found = await look_up
        except StoreUnavailable:
            if not owned:
                raise
            found = {}
        return [found.get(mark) or places[mark] for mark in marks]

    def _in_memory(self, user_id: str, mark: str) -> StoredAt | None:
        """Return what `find` says of an id, as far as this node's memory knows."""
        owners = (*self._known.get(mark, ()), *self._fresh.find(mark))
        for owner, place in owners:
            if owner == user_id:
                return place
        return StoredAt(mark) if owners else None

    async def _look_up(
        self,
        user_id: str,
        marks: Sequence[str],
        owned: Sequence[str],
        pauses_s: tuple[float, ...],
        within_s: float,
    ) -> dict[str, StoredAt]:
        """Return what the store knows, by mark; nobody has been given those that are not there.
        `owned`: memory knows them under other users. Raises StoreUnavailable."""
        came_ns = time.monotonic_ns()
        certain = False
        places: dict[str, StoredAt] = {}
        try:
            async with asyncio.timeout(within_s), self._turn(user_id) as asked:
                for pause_s in (0.0, *pauses_s):
                    if pause_s:
                        await asyncio.sleep(pause_s)
                    # Before the store is read: an id that it lacks then was handed out later.
                    settled = self._fresh.settled_ns() >= came_ns
                    question = (user_id, marks, self._clock_ms())
                    asked.append(self._executor.submit(self._look, *question))
                    found = await asyncio.wrap_future(asked[-1])
                    places = found.places
                    for place in places.values():
                        if place.channel_id:
                            self._remember(user_id, place)
                    if all(mark in places or mark in owned for mark in marks):
                        return places
                    certain = settled and found.elsewhere != "overdue"
                    if certain and found.elsewhere == "none":
                        return places
        except TimeoutError:
            pass
        if not certain:
            raise StoreUnavailable("the store cannot say yet who was given an id")
        return places

    @asynccontextmanager
    async def _turn(self, user_id: str) -> AsyncIterator[list[Future[Found]]]:
        """One of the look-ups that a user may have at a time: yields a list for its queries."""
        line = self._lines.setdefault(user_id, _Line())
        if line.count >= LOOK_UPS_PER_USER + WAITING_PER_USER_MAX:
            raise StoreUnavailable("too many stored responses of a user are being looked up")
        line.count += 1
        asked: list[Future[Found]] = []
        taken = False
        try:
            await line.turns.acquire()
            taken = True
            yield asked
        finally:
            if asked and not asked[-1].done():
                # A thread still waits for the store: the turn ends when it is back.
                loop = asyncio.get_running_loop()
                asked[-1].add_done_callback(
                    lambda _: loop.call_soon_threadsafe(self._end_turn, user_id, True)
                )
            else:
                self._end_turn(user_id, taken)

    def _end_turn(self, user_id: str, taken: bool) -> None:
        line = self._lines[user_id]
        if taken:
            line.turns.release()
        line.count -= 1
        if not line.count:
            del self._lines[user_id]

    def _remember(self, user_id: str, stored: StoredAt) -> None:
        others = (one for one in self._known.get(stored.mark, ()) if one[0] != user_id)
        self._known[stored.mark] = (*others, (user_id, stored))
        self._known.move_to_end(stored.mark)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


class _Line:
    """The look-ups of one user, running and queued."""

    __slots__ = ("count", "turns")

    def __init__(self) -> None:
        self.count = 0
        self.turns = asyncio.Semaphore(LOOK_UPS_PER_USER)

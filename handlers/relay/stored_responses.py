"""Responses stored at vendors: calls that name one go to the channel that made it.

A response can be found only by its user, as soon as the client can read its id. This worker's own
responses are in its memory, those of the node's other workers in shared memory
(recent_responses.py). All others are looked up in the store, which has what the writers have
applied. Imported by admission, records.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from handlers.relay.recent_responses import Owned, RecentResponses
from store.calls.stored_responses import Found, mark_of
from store.values.errors import StoreUnavailable
from store.values.usage_record import StoredAt

MAX_KNOWN = 20_000  # some 8 MB; the others are in the store
LOOK_UP_S = 1.5  # for all ids of a call, including queueing; a writer that is not busy needs 0.2 s
LOOK_TWICE_S = 0.2  # for an older response, if another user recently got the same id
PAUSES_S = (0.1, 0.2, 0.4, 0.7)  # between the queries of a look-up
LOOK_UPS_PER_USER = 8  # at one time, so that one user's junk ids delay nobody else
WAITING_PER_USER_MAX = 100  # look-ups queued behind those; further calls are refused

Look = Callable[[str, Sequence[str], int], Found]


class StoredResponses:
    """The channel and upstream key that made each user's responses. `look` is find_stored, which
    blocks and is called in `executor`. `clock_ms` is the wall clock. `refuse`: unknown ids are
    refused; otherwise they go to the only channel, if there is exactly one."""

    def __init__(
        self,
        look: Look,
        executor: Executor,
        clock_ms: Callable[[], int],
        recent: RecentResponses,
        refuse: bool = True,
    ) -> None:
        self._look = look
        self._executor = executor
        self._clock_ms = clock_ms
        self._recent = recent
        self.refuse = refuse
        self._known: OrderedDict[str, tuple[Owned, ...]] = OrderedDict()
        self._queues: dict[str, _Queue] = {}

    def note(self, user_id: str, stored: StoredAt) -> None:
        """Remember the place of a response whose id the user is about to read."""
        self._remember(user_id, stored)
        self._recent.put(user_id, stored)

    def forget(self, user_id: str, response_id: str) -> StoredAt:
        """Forget a user's response that the vendor deleted. Return its entry for the usage
        record."""
        mark = mark_of(response_id)
        rest = tuple(owned for owned in self._known.pop(mark, ()) if owned[0] != user_id)
        if rest:
            self._known[mark] = rest
        self._recent.drop(user_id, mark)
        return StoredAt(mark)

    async def find(self, user_id: str, ids: Sequence[str]) -> list[StoredAt | None]:
        """Return the places of a user's responses, in the order of their ids. A place without a
        channel: the response is another user's. None: nobody was given the id. Ids that are not in
        memory take one look-up in the store. Raises StoreUnavailable if only the store can answer,
        and it is unreachable or does not have all records yet."""
        marks = [mark_of(id_) for id_ in ids]
        places = {mark: self._in_memory(user_id, mark) for mark in marks}
        missing = [mark for mark, place in places.items() if place is None or not place.channel_id]
        if not missing:
            return [places[mark] for mark in marks]
        # Vendors may issue an id twice: the store knows whether this user has an older response
        # with it.
        owned = all(places[mark] is not None for mark in missing)
        pauses_s, within_s = ((), LOOK_TWICE_S) if owned else (PAUSES_S, LOOK_UP_S)
        # A task, since asyncio.timeout needs one and handlers run without.
        look_up = asyncio.create_task(
            self._look_up(user_id, missing, [m for m in missing if places[m]], pauses_s, within_s)
        )
        try:
            places_in_store = await look_up
        except StoreUnavailable:
            if not owned:
                raise
            places_in_store = {}
        return [places_in_store.get(mark) or places[mark] for mark in marks]

    def _in_memory(self, user_id: str, mark: str) -> StoredAt | None:
        """Return the same as `find` for one id, from this node's memory alone."""
        owners = (*self._known.get(mark, ()), *self._recent.find(mark))
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
        """Return the places in the store by mark. Nobody was given the ids of absent marks.
        `owned`: marks that memory has under other users. Raises StoreUnavailable."""
        came_ns = time.monotonic_ns()
        certain = False
        places: dict[str, StoredAt] = {}
        try:
            async with asyncio.timeout(within_s), self._slot(user_id) as queries:
                for pause_s in (0.0, *pauses_s):
                    if pause_s:
                        await asyncio.sleep(pause_s)
                    # Checked before the store is read: an id that it then lacks was handed out
                    # later.
                    settled = self._recent.settled_ns() >= came_ns
                    query = (user_id, marks, self._clock_ms())
                    queries.append(self._executor.submit(self._look, *query))
                    answer = await asyncio.wrap_future(queries[-1])
                    places = answer.places
                    for place in places.values():
                        if place.channel_id:
                            self._remember(user_id, place)
                    if all(mark in places or mark in owned for mark in marks):
                        return places
                    certain = settled and answer.elsewhere != "overdue"
                    if certain and answer.elsewhere == "none":
                        return places
        except TimeoutError:
            pass
        if not certain:
            raise StoreUnavailable("the store does not know yet who was given an id")
        return places

    @asynccontextmanager
    async def _slot(self, user_id: str) -> AsyncIterator[list[Future[Found]]]:
        """Wait for one of a user's look-up slots. Yield a list for the queries of the look-up."""
        queue = self._queues.setdefault(user_id, _Queue())
        if queue.count >= LOOK_UPS_PER_USER + WAITING_PER_USER_MAX:
            raise StoreUnavailable("too many stored responses of a user are being looked up")
        queue.count += 1
        queries: list[Future[Found]] = []
        acquired = False
        try:
            await queue.slots.acquire()
            acquired = True
            yield queries
        finally:
            if queries and not queries[-1].done():
                # A thread still waits for the store; the slot is released when it returns.
                loop = asyncio.get_running_loop()
                queries[-1].add_done_callback(
                    lambda _: loop.call_soon_threadsafe(self._release_slot, user_id, True)
                )
            else:
                self._release_slot(user_id, acquired)

    def _release_slot(self, user_id: str, acquired: bool) -> None:
        queue = self._queues[user_id]
        if acquired:
            queue.slots.release()
        queue.count -= 1
        if not queue.count:
            del self._queues[user_id]

    def _remember(self, user_id: str, stored: StoredAt) -> None:
        rest = (owned for owned in self._known.get(stored.mark, ()) if owned[0] != user_id)
        self._known[stored.mark] = (*rest, (user_id, stored))
        self._known.move_to_end(stored.mark)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


@dataclass(slots=True)
class _Queue:
    """The look-ups of one user, running and queued."""

    count: int = 0
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOOK_UPS_PER_USER))

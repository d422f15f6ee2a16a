"""Stored responses: who continues or reads one goes to the channel and upstream key that made it.

This worker's own are known from memory; those of other workers and nodes are in the store a moment
after their clients have seen them, so a look-up that finds nothing is repeated for that long. Only
their user finds them. Imported by the pipeline and by the composition root.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor

from handlers.relay import admit
from handlers.relay.call import Call
from handlers.relay.faults import from_store
from store.errors import StoreUnavailable
from store.stored_responses import mark_of
from store.usage import StoredAt

MAX_KNOWN = 20_000  # some 8 MB; the store knows the others
MAX_LOOKUPS = 256  # at one time; further calls are told to come again
# Between look-ups. A writer brings a closed call into the store in 0.2 s, unless it is busy.
PAUSES_S = (0.1, 0.2, 0.4, 0.8)

Load = Callable[[str, str, int], StoredAt | None]


class StoredResponses:
    """Which channel and upstream key have made a user's response. `load` is find_stored: it blocks
    and is called in `executor`; `clock_ms` is the wall clock."""

    def __init__(self, load: Load, executor: Executor, clock_ms: Callable[[], int]) -> None:
        self._load = load
        self._executor = executor
        self._clock_ms = clock_ms
        self._known: OrderedDict[tuple[str, str], StoredAt] = OrderedDict()
        self._lookups = 0

    async def admit(self, call: Call) -> None:
        """Leaves a call that builds on something stored the channel and key that know it.

        Raises Fault E35 when it is not known here (or another user's), E09 when its channel is
        switched off, E38 when only the store could tell and is away.
        """
        ref, place = call.stored_ref, None
        assert ref is not None
        makers = admit.makers(call)
        if ref.response and makers:
            # What one account alone can have made is asked of that, known or not.
            certain = len(makers) == 1 and len(makers[0].keys) < 2
            try:
                place = await self._find(call.key.user_id, ref.id, () if certain else PAUSES_S)
            except StoreUnavailable as error:
                if len(makers) > 1:
                    raise from_store(error) from None
        admit.check_stored(call, ref, place)

    def note(self, call: Call, response_id: str | None) -> None:
        """The answer of the running attempt is kept by the vendor under this id. Idempotent."""
        step = call.step
        if call.stored is not None or not response_id or step is None:
            return
        channel = step.channel
        fingerprint = channel.fingerprints[step.key] if channel.fingerprints else ""
        call.stored = StoredAt(mark_of(response_id), channel.id, fingerprint)
        self._remember(call.key.user_id, call.stored)

    def forget(self, call: Call) -> None:
        """The vendor has deleted the response that the path of the call names."""
        call.stored = StoredAt(mark_of(call.target or ""))
        self._known.pop((call.key.user_id, call.stored.mark), None)

    async def _find(
        self, user_id: str, response_id: str, pauses_s: tuple[float, ...]
    ) -> StoredAt | None:
        mark = mark_of(response_id)
        known = self._known.get((user_id, mark))
        if known is not None:
            return known
        if self._lookups >= MAX_LOOKUPS:
            raise StoreUnavailable("too many stored responses are being looked up")
        self._lookups += 1
        try:
            found = await self._look_up(user_id, mark)
            for pause_s in pauses_s:
                if found is not None and found.channel_id:
                    break
                await asyncio.sleep(pause_s)
                found = await self._look_up(user_id, mark)
        finally:
            self._lookups -= 1
        if found is not None and found.channel_id:
            self._remember(user_id, found)
        return found

    async def _look_up(self, user_id: str, mark: str) -> StoredAt | None:
        loop, at_ms = asyncio.get_running_loop(), self._clock_ms()
        return await loop.run_in_executor(self._executor, self._load, user_id, mark, at_ms)

    def _remember(self, user_id: str, stored: StoredAt) -> None:
        self._known[user_id, stored.mark] = stored
        self._known.move_to_end((user_id, stored.mark))
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

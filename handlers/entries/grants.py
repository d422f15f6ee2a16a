"""The Hub's grants, as the relay accepts them: once each, from its networks, for a key by its id.

A call with a credential never reaches this code, since a call with a grant has none. The use of a
grant is counted in the memory of limits, which all workers of the node share. A worker that cannot
count accepts no grant.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from adapters.faults import Condition, Fault
from handlers.client_address import Network, is_within
from handlers.relay.limits.limits import Limits
from store.catalog.keys import KeyEntry
from store.values.errors import StoreUnavailable
from store.values.grants import Grant, GrantMaker

log = logging.getLogger("sluice.relay")

LOAD_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Grants:
    """The grants that a worker accepts. `networks` are the Hub's; `load` returns a key by its id
    and blocks."""

    maker: GrantMaker
    networks: Sequence[Network]
    limits: Limits
    load: Callable[[str], KeyEntry | None]
    threads: Executor

    def take(self, text: str, address: str, now_ms: int) -> Grant:
        """Return a grant and mark it as used. Raises Fault MISSING_KEY, as for a request without
        any credential."""
        if not is_within(address, self.networks):
            raise Fault(Condition.MISSING_KEY)
        grant = self.maker.read(text, now_ms=now_ms)
        if grant is None:
            log.warning("grant refused: over, or not of this gateway: from=%s", address)
        elif not self.limits.first_use(f"grant {grant.id}"):
            log.warning("grant refused: used before: from=%s key=%s", address, grant.key_id)
        else:
            return grant
        raise Fault(Condition.MISSING_KEY)

    async def key(self, grant: Grant) -> KeyEntry:
        """Return the key of a grant. Raises Fault INVALID_KEY, UNAVAILABLE."""
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self.threads, self.load, grant.key_id)
        try:
            entry = await asyncio.wait_for(work, LOAD_WAIT_S)
        except (StoreUnavailable, TimeoutError):
            raise Fault(Condition.UNAVAILABLE) from None
        if entry is None:
            raise Fault(Condition.INVALID_KEY)
        return entry

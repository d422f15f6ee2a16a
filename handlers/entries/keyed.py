"""An endpoint for callers with an API key. Imported by the entries that need one."""

from collections.abc import Awaitable

from handlers.http.intake import BodyHandler
from handlers.relay import admit
from store.catalog.key_cache import MISS
from store.catalog.keys import KeyEntry


class KeyedHandler(BodyHandler):
    """Finds the caller's key. Subclasses check it, and what else the head says, in `check_key`."""

    def check_credential(self) -> Awaitable[None] | None:
        """The key of the request; the store is asked for one that is not in memory."""
        secret = admit.credential(self.credential_field, self.dialect.client.credentials)
        entry = self.site.relay.keys.peek(secret)
        if entry is MISS:
            return self._check_later(secret)
        if entry is None:
            raise admit.unknown_key(secret)
        self.check_key(entry)
        return None

    def check_key(self, key: KeyEntry) -> None:
        """The key is known. Raises Fault when the request is refused."""
        raise NotImplementedError

    async def _check_later(self, secret: str) -> None:
        self.check_key(await admit.find_key(self.site.relay.keys, secret))

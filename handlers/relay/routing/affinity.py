"""Where a conversation belongs: prompt caches and opaque reasoning are of one account.

A conversation falls to a channel and an upstream key by its token (rendezvous), so that all workers
and nodes send it there without sharing anything. Only what went elsewhere (a channel failed, was
slow or at its limit) is remembered, by this worker alone: its cache is there now, and what a vendor
has encrypted only that vendor can read. So it stays, even against priority, until it has been
silent for so long that no cache has it, or its channel fails or is slow in turn. Sans-io; no text
is kept, and a token has the caller's user, group and model in it, so that nobody moves another's.
"""

from collections import OrderedDict

from msgspec import Struct

from handlers.relay.routing.plan import Candidate, Preference
from handlers.relay.routing.rendezvous import token_of
from store.catalog.keys import KeyEntry

TTL_S = 3600.0  # of silence: prompt caches of vendors live from five minutes to an hour
MAX_MOVED = 20_000  # some 5 MB; the one that was silent longest is forgotten first


class Moved(Struct, frozen=True, gc=False):
    """Where a conversation is that is not where its token says."""

    channel_id: str
    fingerprint: str  # of the upstream key; empty for a channel without keys
    until_s: float


class Affinity:
    """What a worker remembers of conversations; times are of a monotonic clock."""

    def __init__(self) -> None:
        self._moved: OrderedDict[int, Moved] = OrderedDict()

    def preference_of(self, owner: KeyEntry, model: str, said: bytes, now_s: float) -> Preference:
        """Where a conversation goes: `said` is what tells it from others of its owner."""
        token = token_of(owner.user_id.encode(), owner.group.encode(), model.encode(), said)
        moved = self._moved.get(token) if self._moved else None
        if moved is None or moved.until_s <= now_s:
            return Preference(token)
        return Preference(token, moved.channel_id, moved.fingerprint)

    def accepted(self, preference: Preference, candidate: Candidate, now_s: float) -> None:
        """An answer of the candidate was accepted: the conversation is there now."""
        if not candidate.moved:
            if self._moved:
                self._moved.pop(preference.token, None)
            return
        channel = candidate.channel
        mark = channel.fingerprints[candidate.key] if channel.fingerprints else ""
        self._moved[preference.token] = Moved(channel.id, mark, now_s + TTL_S)
        self._moved.move_to_end(preference.token)
        if len(self._moved) > MAX_MOVED:
            self._moved.popitem(last=False)

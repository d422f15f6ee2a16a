"""The affinity of conversations: one account has their prompt cache and encrypted reasoning.

A conversation's token selects a channel and an upstream key (rendezvous.py), so that all workers
and nodes send it to the same place and share nothing. Only conversations that moved (their channel
failed, was slow or at its limit) are remembered, by this worker alone: their cache is elsewhere
now. They stay on the new channel, whatever the priorities, until they have been silent for longer
than caches live, or that channel fails or is slow in turn. Sans-io. No text is kept. A token covers
the caller's user, group, family and model, so that nobody moves another user's conversation, nor
one that another client of the same user has with a native channel.
"""

from collections import OrderedDict

from msgspec import Struct

from handlers.relay.routing.plan import Candidate, Preference
from handlers.relay.routing.rendezvous import token_of
from store.catalog.keys import KeyEntry

TTL_S = 3600.0  # of silence: prompt caches of vendors live from five minutes to an hour
MAX_MOVED = 20_000  # some 5 MB; the one that has been silent longest is forgotten first


class Moved(Struct, frozen=True, gc=False):
    """The place of a conversation that moved away from the one its token selects."""

    channel_id: str
    fingerprint: str  # of the upstream key; empty for a channel without keys
    until_s: float


class Affinity:
    """The moved conversations of one worker. Times are of a monotonic clock."""

    def __init__(self) -> None:
        self._moved: OrderedDict[int, Moved] = OrderedDict()

    def preference_of(
        self, owner: KeyEntry, family: str, model: str, conversation: bytes, now_s: float
    ) -> Preference:
        """Return the preference of a family's conversation. `conversation` distinguishes it from
        the owner's other conversations."""
        caller = (owner.user_id, owner.group, family, model)
        token = token_of(*(part.encode() for part in caller), conversation)
        moved = self._moved.get(token) if self._moved else None
        if moved is None or moved.until_s <= now_s:
            return Preference(token)
        return Preference(token, moved.channel_id, moved.fingerprint)

    def accepted(self, preference: Preference, candidate: Candidate, now_s: float) -> None:
        """Note that the candidate's answer was accepted: the conversation is now at its channel."""
        if not candidate.moved:
            if self._moved:
                self._moved.pop(preference.token, None)
            return
        channel = candidate.channel
        fingerprint = channel.fingerprints[candidate.key] if channel.fingerprints else ""
        self._moved[preference.token] = Moved(channel.id, fingerprint, now_s + TTL_S)
        self._moved.move_to_end(preference.token)
        if len(self._moved) > MAX_MOVED:
            self._moved.popitem(last=False)

"""Digests of keys move to the newest pepper: a digest can only be made again while the secret is
seen, so the look-up of a used key notes it, and the writer replaces the old one.

Noted by look-up threads, written by the writer's. Nothing else uses a digest, so nobody notices.
"""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import peewee

from store.db.database import transaction
from store.db.tables.users import KeySecret
from store.values.errors import Conflict, StoreUnavailable
from store.values.key_secrets import pepper_id

log = logging.getLogger(__name__)

MAX_MOVES = 10_000
"""That wait; a key whose move is dropped is noted again at its next look-up."""


@dataclass(frozen=True, slots=True)
class _Move:
    newest: bytes
    older: Sequence[bytes]


class PepperMoves:
    """Keys to be moved to the first of these peppers; without peppers nothing is moved."""

    def __init__(self, peppers: Sequence[str]) -> None:
        self._pepper_id = pepper_id(peppers[0]) if peppers else ""
        self._waiting: deque[_Move] = deque(maxlen=MAX_MOVES)

    def note(self, marks: Sequence[bytes]) -> None:
        """A key was found by one of the digests of its secret, newest pepper first."""
        if len(marks) > 1 and self._pepper_id:
            self._waiting.append(_Move(marks[0], marks[1:]))

    def write(self, db: peewee.Database) -> None:
        """Replace what waits. Blocking, idempotent. StoreUnavailable: the rest waits on."""
        while self._waiting:
            move = self._waiting.popleft()
            try:
                transaction(db, lambda move=move: self._replace(db, move))  # type: ignore[misc]
            except Conflict:
                log.warning("a key has digests under two peppers: the older one stays")
            except StoreUnavailable:
                self._waiting.appendleft(move)
                raise

    def _replace(self, db: peewee.Database, move: _Move) -> None:
        to = {"digest": move.newest, "pepper_id": self._pepper_id}
        KeySecret.update(**to).where(KeySecret.digest << list(move.older)).execute(db)

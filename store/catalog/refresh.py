"""Brings changes of the store into a running worker each second: keys, and a new catalogue.

Runs in the writer's thread, and in a look-up thread when a key was found there: a new key may come
with a new group and new models. `post` hands what it found to the loop's thread. While the store is
away nothing is called, so that the last snapshot stays in use.
"""

import threading
from collections.abc import Callable

import peewee

from store.catalog.catalog import NOTHING_TRANSLATED, Losses, Snapshot, load_snapshot
from store.db.changes import CATALOG, Changes, read_changes
from store.values.cipher import Cipher

Post = Callable[[Callable[[], None]], None]


class Refresh:
    """Follows the change log. `on_snapshot` and `on_changes` are called in the loop's thread;
    `losses`: what snapshots can translate."""

    def __init__(
        self,
        cipher: Cipher,
        post: Post,
        on_snapshot: Callable[[Snapshot], None],
        on_changes: Callable[[Changes], None],
        *,
        losses: Losses = NOTHING_TRANSLATED,
    ) -> None:
        self._losses = losses
        self._cipher = cipher
        self._post = post
        self._on_snapshot = on_snapshot
        self._on_changes = on_changes
        self._version: int | None = None
        self._lock = threading.Lock()

    def poll(self, db: peewee.Database) -> None:
        """Looks for changes since the last call. Blocking. Raises StoreUnavailable."""
        with self._lock:
            self._poll(db)

    def _poll(self, db: peewee.Database) -> None:
        changes = read_changes(db, -1 if self._version is None else self._version)
        if changes.version == self._version:
            return
        catalog = any(change.kind == CATALOG for change in changes.changes)
        if self._version is None or not changes.complete or catalog:
            snapshot = load_snapshot(db, self._cipher, self._losses)
            self._post(lambda: self._on_snapshot(snapshot))
        if self._version is not None:
            self._post(lambda: self._on_changes(changes))
        self._version = changes.version

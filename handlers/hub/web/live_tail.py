"""The live tail: new calls as server-sent events.

A single thread of the process reads new calls from the store for all viewers, and only while there
are viewers. The filters of each viewer are applied in memory. Calls for a viewer wait in a bounded
queue; calls that do not fit are counted and reported.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import peewee
from tornado.iostream import StreamClosedError

from handlers.hub.web.base import Failure, HubHandler
from handlers.hub.web.site import Busy
from store.calls.usage_queries import Filters, Row, follow, matches
from store.db.database import database_ms, discard
from store.values.errors import StoreError, StoreUnavailable

log = logging.getLogger(__name__)

VIEWERS_MAX = 200
VIEWERS_OF_USER_MAX = 20
WAITING_MAX = 500  # calls that wait for one viewer
HEARTBEAT_S = 15.0
CHECK_S = 30.0  # between two checks of the session
PAUSE_S = 0.5
RETRY_S = 1.0
_SETTING = "new_calls"  # the application's setting that holds its only NewCalls


@dataclass(eq=False, slots=True)
class TailViewer:
    """A viewer of the live tail, with the calls that wait to be sent to it."""

    filters: Filters
    user_id: str
    waiting: deque[Row] = field(default_factory=deque)
    missed: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self) -> tuple[list[Row], int]:
        """Return the waiting calls and the number of calls that did not fit, and reset both."""
        rows, missed = [*self.waiting], self.missed
        self.waiting.clear()
        self.missed = 0
        self.wake.clear()
        return rows, missed


class NewCalls:
    """The new calls of the store, for all viewers of this process. Call its methods only on the
    event loop's thread."""

    def __init__(self, db: peewee.Database) -> None:
        self._db = db
        self._viewers: set[TailViewer] = set()
        self._reader: threading.Thread | None = None

    def join(self, viewer: TailViewer) -> None:
        """Start to send new calls to a viewer."""
        self._viewers.add(viewer)
        if self._reader is None:
            loop = asyncio.get_running_loop()
            self._reader = threading.Thread(
                target=self._read, args=(loop,), name="usage-news", daemon=True
            )
            self._reader.start()

    def leave(self, viewer: TailViewer) -> None:
        """Remove a viewer. The thread ends when no viewers remain."""
        self._viewers.discard(viewer)

    def full_for(self, user_id: str) -> bool:
        """Return whether there are too many viewers, in total or of this user."""
        own = sum(viewer.user_id == user_id for viewer in self._viewers)
        return len(self._viewers) >= VIEWERS_MAX or own >= VIEWERS_OF_USER_MAX

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while self._viewers:
                try:
                    self._follow(loop)
                except StoreError as error:
                    log.warning("new calls cannot be read: %s", error)
                    time.sleep(RETRY_S)
        except _NoViewers:
            pass
        except RuntimeError:
            return  # the loop has ended
        finally:
            discard(self._db)
        try:
            loop.call_soon_threadsafe(self._ended, loop)
        except RuntimeError:
            pass  # the loop has ended

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        batch: list[Row] = []

        def pause(_: float) -> None:
            if batch:
                loop.call_soon_threadsafe(self._give, batch.copy())
                batch.clear()
            if not self._viewers:
                raise _NoViewers
            time.sleep(PAUSE_S)

        for row in follow(self._db, Filters(), database_ms(self._db), pause):
            batch.append(row)

    def _ended(self, loop: asyncio.AbstractEventLoop) -> None:
        self._reader = None
        for viewer in [*self._viewers]:  # that joined while the thread was ending
            self.join(viewer)

    def _give(self, rows: list[Row]) -> None:
        for viewer in self._viewers:
            for row in rows:
                if not matches(viewer.filters, row):
                    continue
                if len(viewer.waiting) < WAITING_MAX:
                    viewer.waiting.append(row)
                else:
                    viewer.missed += 1
            if viewer.waiting or viewer.missed:
                viewer.wake.set()


class _NoViewers(Exception):
    """The last viewer has left."""


class LiveTail(HubHandler):
    """A handler that sends new calls until its client disconnects. `messages` encodes them."""

    counts_as_use = False  # a page left open would otherwise keep its session alive forever
    _left = False
    _viewer: TailViewer | None = None

    async def serve_tail(self, viewer: TailViewer) -> None:
        """Send new calls until the client disconnects."""
        new_calls: NewCalls = self.application.settings.setdefault(_SETTING, NewCalls(self.site.db))
        if new_calls.full_for(viewer.user_id):
            raise Failure(429, "too_many", "too many look on already", wait_s=60)
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("X-Accel-Buffering", "no")
        if self.request.method == "HEAD":
            return
        new_calls.join(viewer)
        self._viewer = viewer
        check_at = time.monotonic() + CHECK_S
        try:
            self.write("retry: 2000\n\n")
            while not self._left:
                await self.flush()
                if time.monotonic() >= check_at:
                    check_at = time.monotonic() + CHECK_S
                    if not await self._is_same():
                        return
                try:
                    await asyncio.wait_for(viewer.wake.wait(), HEARTBEAT_S)
                except TimeoutError:
                    self.write(": still here\n\n")
                    continue
                self.write(self.messages(*viewer.take()))
        except StreamClosedError:
            pass
        finally:
            new_calls.leave(viewer)

    async def _is_same(self) -> bool:
        """Return whether the session or token is still valid, with the same role."""
        before = self.signed_in
        try:
            await self.find_session()
        except (StoreUnavailable, Busy):
            return True  # while the store is unreachable, no calls are sent anyway
        return self.signed_in == before

    def messages(self, rows: Sequence[Row], missed: int) -> bytes:
        """Return calls, oldest first, encoded as events. `missed`: the number of calls that did not
        fit."""
        raise NotImplementedError

    def on_connection_close(self) -> None:
        """Wake `serve_tail`, since the client has disconnected."""
        super().on_connection_close()
        self._left = True
        if self._viewer is not None:
            self._viewer.wake.set()

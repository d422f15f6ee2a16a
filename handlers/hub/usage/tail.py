"""The live tail: new calls as server-sent events.

One thread of the process reads what is new in the store, whatever the number of viewers, and only
while there are any; each viewer's filters are asked in memory. What a viewer does not take waits in
a queue of bounded length; what does not fit is counted and told.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import peewee
from tornado.iostream import StreamClosedError

from handlers.hub.usage.api import ApiUsageBase
from handlers.hub.usage.shown import public
from handlers.hub.web.base import Failure, HubHandler
from handlers.hub.web.site import Busy
from store.calls.reading.matching import matches
from store.calls.usage_queries import Filters, Row, follow
from store.db.database import database_ms, discard
from store.values.errors import StoreError, StoreUnavailable

log = logging.getLogger(__name__)

VIEWERS_MAX = 200
VIEWERS_OF_USER_MAX = 20
WAITING_MAX = 500  # calls of one viewer
HEARTBEAT_S = 15.0
CHECK_S = 30.0  # how often it is asked whether the viewer may still look on
PAUSE_S = 0.5
RETRY_S = 1.0
_KEPT = "usage_news"


@dataclass(eq=False, slots=True)
class Viewer:
    """Somebody who looks on, and what waits to be sent."""

    filters: Filters
    user_id: str
    waiting: deque[Row] = field(default_factory=deque)
    missed: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self) -> tuple[list[Row], int]:
        """What has come, and how many calls did not fit; nothing waits then."""
        rows, missed = [*self.waiting], self.missed
        self.waiting.clear()
        self.missed = 0
        self.wake.clear()
        return rows, missed


class News:
    """The new calls of the store, for all viewers of this process. For the loop's thread."""

    def __init__(self, db: peewee.Database) -> None:
        self._db = db
        self._viewers: set[Viewer] = set()
        self._reader: threading.Thread | None = None

    def join(self, viewer: Viewer) -> None:
        """Begins to give a viewer what is new."""
        self._viewers.add(viewer)
        if self._reader is None:
            loop = asyncio.get_running_loop()
            self._reader = threading.Thread(
                target=self._read, args=(loop,), name="usage-news", daemon=True
            )
            self._reader.start()

    def leave(self, viewer: Viewer) -> None:
        """Ends it; without viewers the reading ends, too."""
        self._viewers.discard(viewer)

    def full_for(self, user_id: str) -> bool:
        """Whether too many look on already, or too many of this user."""
        own = sum(one.user_id == user_id for one in self._viewers)
        return len(self._viewers) >= VIEWERS_MAX or own >= VIEWERS_OF_USER_MAX

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while self._viewers:
                try:
                    self._follow(loop)
                except StoreError as error:
                    log.warning("new calls cannot be read: %s", error)
                    time.sleep(RETRY_S)
        except _NobodyLooks:
            pass
        except RuntimeError:
            return  # the loop has ended
        finally:
            discard(self._db)
        try:
            loop.call_soon_threadsafe(self._ended, loop)
        except RuntimeError:
            pass  # the same

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        batch: list[Row] = []

        def pause(_: float) -> None:
            if batch:
                loop.call_soon_threadsafe(self._give, batch.copy())
                batch.clear()
            if not self._viewers:
                raise _NobodyLooks
            time.sleep(PAUSE_S)

        for row in follow(self._db, Filters(), database_ms(self._db), pause):
            batch.append(row)

    def _ended(self, loop: asyncio.AbstractEventLoop) -> None:
        self._reader = None
        for viewer in [*self._viewers]:  # who came while it ended
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


class _NobodyLooks(Exception):
    """The last viewer has left."""


class Onlooking(HubHandler):
    """A handler that looks on until its client leaves; `messages` writes what it is sent."""

    counts_as_use = False  # a page that is left open comes back by itself, for ever
    _left = False
    _viewer: Viewer | None = None

    async def serve_tail(self, viewer: Viewer) -> None:
        """Sends what is new until the client leaves."""
        news: News = self.application.settings.setdefault(_KEPT, News(self.site.db))
        if news.full_for(viewer.user_id):
            raise Failure(429, "too_many", "too many look on already", wait_s=60)
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("X-Accel-Buffering", "no")
        news.join(viewer)
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
            news.leave(viewer)

    async def _is_same(self) -> bool:
        """Whether the session or token is still what it was: not ended, of the same role."""
        before = self.signed_in
        try:
            await self.find_session()
        except (StoreUnavailable, Busy):
            return True  # nothing is sent either while the store is away
        return self.signed_in == before

    def messages(self, rows: Sequence[Row], missed: int) -> bytes:
        """Some calls, the oldest first, as events; `missed`: how many besides were too many."""
        raise NotImplementedError

    def on_connection_close(self) -> None:
        """The client has left."""
        super().on_connection_close()
        self._left = True
        if self._viewer is not None:
            self._viewer.wake.set()


class ApiTail(Onlooking, ApiUsageBase):
    """GET /api/usage/tail: a message for each new call, its data a record; `missed` for those that
    were too many."""

    async def get(self) -> None:
        wanted = await self.asked()
        await self.serve_tail(Viewer(wanted.filters, self.me.user_id))

    def messages(self, rows: Sequence[Row], missed: int) -> bytes:
        """An event for each."""
        admin = self.me.admin
        events = [
            b"id: %b\ndata: %b\n\n"
            % (row["id"].encode(), msgspec.json.encode(public(row, admin=admin)))
            for row in rows
        ]
        if missed:
            events.append(b"event: missed\ndata: %d\n\n" % missed)
        return b"".join(events)

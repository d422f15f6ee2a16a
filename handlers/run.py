"""One handler at work on one request: head, body, end, and what becomes of its bugs.

It takes the place of Tornado's `RequestHandler._execute`, which turns the loop twice for every
request, whether something has to be waited for or not (docs/performance.md, ADR 0001).
"""

import asyncio
import logging
from collections.abc import Awaitable

from handlers.intake import BodyHandler

log = logging.getLogger("sluice.http")

_FAILED = "request %s failed"


class HandlerRun:
    """What a connection feeds; a handler's bug ends in E37, never in silence."""

    __slots__ = ("_handler", "_task")

    def __init__(self, handler: BodyHandler) -> None:
        self._handler = handler
        self._task: asyncio.Task[None] | None = None  # the loop itself holds no task

    def headers_received(self) -> "asyncio.Task[None] | None":
        """The head is here; a task when the body has to wait for it."""
        try:
            waiting = self._handler.prepare()
        except Exception:
            log.exception(_FAILED, self._handler.call_id)
            self._handler.write_error(500)
            return None
        return None if waiting is None else self._wait_for(waiting)

    def data_received(self, chunk: bytes) -> None:
        """A piece of the body."""
        self._handler.data_received(chunk)

    def finish(self) -> None:
        """The body was here."""
        try:
            waiting = self._handler.body_done()
        except Exception:
            log.exception(_FAILED, self._handler.call_id)
            self._handler.write_error(500)
            return
        if waiting is not None:
            self._wait_for(waiting)

    def on_connection_close(self) -> None:
        """The client is gone, or its request was answered before the body was here."""
        self._handler.on_connection_close()

    def _wait_for(self, waiting: Awaitable[None]) -> "asyncio.Task[None]":
        self._task = asyncio.get_running_loop().create_task(self._guarded(waiting))
        return self._task

    async def _guarded(self, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except Exception:
            log.exception(_FAILED, self._handler.call_id)
            self._handler.write_error(500)

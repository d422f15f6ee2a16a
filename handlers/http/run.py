"""The run of one handler for one request: head, body, end. Exceptions become internal errors.

It replaces Tornado's `RequestHandler._execute`, which takes two turns of the loop for every request
(docs/lab/figures.md, ADR 0001).
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

log = logging.getLogger("sluice.http")

_FAILED = "request %s failed"


class Handler(Protocol):
    """The handler of one request, which receives its head, body and end."""

    call_id: str

    def prepare(self) -> Coroutine[Any, Any, None] | None: ...

    def data_received(self, chunk: bytes) -> None: ...

    def body_done(self) -> Coroutine[Any, Any, None] | None: ...

    def on_connection_close(self) -> None: ...

    def write_error(self, status_code: int) -> None: ...


class HandlerRun:
    """The delegate of a connection. An exception of the handler is logged and answered."""

    __slots__ = ("_preparing", "_work", "handler")

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self._preparing: asyncio.Task[None] | None = None  # keeps the task alive
        self._work: Coroutine[Any, Any, None] | None = None

    def headers_received(self) -> "asyncio.Future[None] | None":
        """Handle the request head. Return a future if the body has to wait for it."""
        try:
            work = self.handler.prepare()
        except Exception:
            log.exception(_FAILED, self.handler.call_id)
            self.handler.write_error(500)
            return None
        if work is not None:
            self._preparing = asyncio.create_task(self._guarded(work))
        return self._preparing

    def data_received(self, chunk: bytes) -> None:
        self.handler.data_received(chunk)

    def finish(self) -> None:
        try:
            self._work = self.handler.body_done()
        except Exception:
            log.exception(_FAILED, self.handler.call_id)
            self.handler.write_error(500)
            return
        if self._work is not None:
            self._go_on()

    def on_connection_close(self) -> None:
        """Handle a client that disconnected or was answered before its body was received."""
        self.handler.on_connection_close()

    def _go_on(self, waited_for: object = None) -> None:
        """Run the handler until it waits. A task would start one turn later and cost 1 % of a plain
        call. Without a task `asyncio.timeout` fails in a handler."""
        assert self._work is not None
        try:
            future = self._work.send(None)
        except StopIteration:
            return
        except (Exception, asyncio.CancelledError):
            log.exception(_FAILED, self.handler.call_id)
            self.handler.write_error(500)
            return
        if future is None:
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            future.add_done_callback(self._go_on)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            log.exception(_FAILED, self.handler.call_id)
            self.handler.write_error(500)

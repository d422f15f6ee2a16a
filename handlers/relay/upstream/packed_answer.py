"""A packed answer that is read whole: counted as it arrives, then unpacked.

Both are done in slices, so that the loop is not blocked. Counting first ensures that an answer
larger than allowed never takes the memory. Imported by exchange.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO

from handlers.relay.upstream.request import Unpacker, UpstreamError

UNPACKED_PIECES_PER_TURN = 64  # 64 KiB each: some 5 ms
_DONE = object()


@dataclass(slots=True, eq=False)
class PackedAnswer:
    """The unpacking of `pieces`, to which more may be added. `on_end` gets the whole answer, or the
    error if it cannot be unpacked or has more than `max_bytes`."""

    _loop: asyncio.AbstractEventLoop
    _unpacker: Unpacker
    _pieces: list[bytes]
    _max_bytes: int
    _on_end: Callable[[bytes | UpstreamError], None]
    _counted_pieces: int = 0
    _unpacked_bytes: int = 0  # unpacked size of the counted pieces
    _all_here: bool = False
    _is_due: bool = False
    _is_over: bool = False

    def go_on_soon(self) -> None:
        """Count in the loop's next turn."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._count)

    def finish(self) -> None:
        """Unpack once all pieces are counted. There will be no more pieces."""
        self._all_here = True
        self.go_on_soon()

    def stop(self) -> None:
        """Stop, without calling `on_end`."""
        self._is_over = True

    def _count(self) -> None:
        self._is_due = False
        if self._is_over:
            return
        unpacker = self._unpacker
        try:
            unpacker.feed(b"".join(self._pieces[self._counted_pieces :]))
            self._counted_pieces = len(self._pieces)
            for _ in range(UNPACKED_PIECES_PER_TURN):
                if not unpacker.more:
                    break
                self._unpacked_bytes += len(unpacker.piece())
                if self._unpacked_bytes > self._max_bytes:
                    raise too_large(self._max_bytes)
            if self._all_here and not unpacker.more:
                unpacker.close()
        except UpstreamError as error:
            self._on_end(error)
            return
        if unpacker.more:
            self.go_on_soon()
        elif self._all_here:
            whole = BytesIO()
            self._unpack(whole, self._steps(whole))

    def _unpack(self, whole: BytesIO, steps: Iterator[None]) -> None:
        if self._is_over:
            return
        for _ in range(UNPACKED_PIECES_PER_TURN):
            if next(steps, _DONE) is _DONE:
                self._on_end(whole.getvalue())
                return
        self._loop.call_soon(self._unpack, whole, steps)

    def _steps(self, whole: BytesIO) -> Iterator[None]:
        if self._unpacked_bytes:  # all of the memory at once, so that none is copied as it grows
            whole.seek(self._unpacked_bytes - 1)
            whole.write(b"\0")
            whole.seek(0)
        packed = deque(self._pieces)
        self._pieces.clear()
        for piece in self._unpacker.whole(packed.popleft() for _ in range(len(packed))):
            whole.write(piece)
            yield


def too_large(max_bytes: int) -> UpstreamError:
    """Return the error for an answer with more than `max_bytes`."""
    return UpstreamError("too_large", f"more than {max_bytes} bytes")

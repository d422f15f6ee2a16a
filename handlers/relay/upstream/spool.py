"""Large bodies on disk: written off the loop as they arrive, read by libcurl as they are sent.

The files have no names, so that none are left over when a process dies. The bytes were written
shortly before, so reading them does not wait for the disk. Imported by the entries and the relay.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from io import SEEK_CUR, SEEK_END, RawIOBase
from typing import Any

from adapters.json.jsonio import Span

PENDING_MAX_BYTES = 1 << 20  # waiting to be written; beyond it reading from the client pauses
_SEEK_DONE, _SEEK_FAILED = 0, 1


class Spool:
    """One body on disk. `on_drained` is called when there is room again."""

    def __init__(self, folder: str, executor: Executor) -> None:
        self._folder, self._executor = folder, executor
        self._file: Any = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._writing: asyncio.Future[None] | None = None
        self._error: OSError | None = None
        self._closed = False
        self.size_bytes = 0
        self.on_drained: Callable[[], None] | None = None

    @property
    def full(self) -> bool:
        """Return whether so many bytes wait to be written that no more should be added."""
        return self._pending_bytes > PENDING_MAX_BYTES

    @property
    def descriptor(self) -> int:
        """Return the descriptor of the written file. Raises ValueError after `close`."""
        number: int = self._file.fileno()
        return number

    def add(self, piece: bytes) -> None:
        """Take the next bytes, which are written later."""
        self._pending.append(piece)
        self._pending_bytes += len(piece)
        self.size_bytes += len(piece)
        if self._writing is None:
            self._write_on()

    async def finish(self) -> None:
        """Wait until all is written. Raises OSError."""
        while self._writing is not None:
            await asyncio.wait([self._writing])
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Free the space. Idempotent."""
        self._closed = True
        self._pending.clear()
        if self._writing is None and self._file is not None:
            self._file.close()

    def _write_on(self) -> None:
        pieces, self._pending = self._pending, []
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._executor, self._write, pieces)
        self._writing.add_done_callback(self._written)

    def _write(self, pieces: list[bytes]) -> None:
        """Write in a thread."""
        if self._file is None:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[self._file.write(view) :]

    def _written(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        error = writing.exception()
        if isinstance(error, OSError):
            self._error = error
            self._pending.clear()
        self._pending_bytes = sum(map(len, self._pending))
        if self._closed:
            self.close()
        elif self._pending:
            self._write_on()
        if not self.full and self.on_drained is not None:
            self.on_drained()


class SpooledBody:
    """A body for an upstream: the bytes of a spool, with some spans replaced."""

    def __init__(self, spool: Spool, edits: Mapping[Span, bytes]) -> None:
        self.spool = spool
        self.pieces: list[Span | bytes] = []
        at = 0
        for span in sorted(edits):
            self.pieces += [Span(at, span.start), edits[span]]
            at = span.end
        self.pieces.append(Span(at, spool.size_bytes))

    def __len__(self) -> int:
        return sum(map(_length, self.pieces))


class SpooledSource:
    """The source of a spooled body for libcurl, as `request.RequestBody` is for bytes."""

    def __init__(self, body: SpooledBody) -> None:
        self._body: SpooledBody | None = body
        self.nbytes = len(body)
        self._at = 0
        self._rewound = False

    def read(self, size: int) -> bytes:
        """Serve as READFUNCTION. Raises ValueError after `close`, which ends the transfer."""
        if self._body is None:
            raise ValueError("the body was closed")
        at = self._at
        for piece in self._body.pieces:
            length = _length(piece)
            if at < length:
                count = min(size, length - at)
                if isinstance(piece, bytes):
                    data = piece[at : at + count]
                else:
                    data = os.pread(self._body.spool.descriptor, count, piece.start + at)
                self._at += len(data)
                return data
            at -= length
        return b""

    def rewind(self, offset: int, origin: int) -> int:
        """Serve as SEEKFUNCTION: go back once."""
        if self._rewound or offset or origin:
            return _SEEK_FAILED
        self.send_again()
        return _SEEK_DONE

    def send_again(self) -> None:
        """Start again. There is no third time."""
        self._rewound = True
        self._at = 0

    def close(self) -> None:
        self._body = None

    @property
    def taken(self) -> bool:
        """Return whether libcurl has read the whole body."""
        return self._at == self.nbytes


class SpooledFile(RawIOBase):
    """A file inside a spooled form, for a thread that reads the file's header."""

    def __init__(self, spool: Spool, place: Span) -> None:
        self._descriptor, self._place, self._at = spool.descriptor, place, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, origin: int = 0) -> int:
        size = self._place.end - self._place.start
        base = {SEEK_CUR: self._at, SEEK_END: size}.get(origin, 0)
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        start = self._place.start + self._at
        count = max(0, min(len(buffer), self._place.end - start))
        data = os.pread(self._descriptor, count, start)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _length(piece: Span | bytes) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.end - piece.start

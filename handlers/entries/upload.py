"""Endpoints whose body may be a form with files. A large form is received to disk.

No large form is in memory: its texts are read while it arrives, and libcurl reads the rest from the
disk for each attempt.
"""

import asyncio
import logging
import struct
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BufferedReader, BytesIO
from typing import Any, BinaryIO, cast

from msgspec.structs import replace
from tinytag import TinyTag, TinyTagException

from adapters.endpoints.endpoint import Endpoint
from adapters.endpoints.form import AUDIO_BYTES_PER_S, Form, form_of, malformed
from adapters.faults import Condition, Fault
from adapters.framing.multipart import FormError, FormReader, boundary_of
from handlers.entries.inference import EndpointHandler
from handlers.entries.unpack import keep_piece
from handlers.relay.call import Content, Ending
from handlers.relay.downstream import Downstream
from handlers.relay.limits.body_memory import BodyHold
from handlers.relay.upstream.spool import Spool, SpooledFile
from store.catalog.keys import KeyEntry

log = logging.getLogger("sluice.relay")

IN_MEMORY_BYTES = 1 << 20  # larger forms go to the disk
_THREADS = 2
_MS_PER_S = 1000
_FORM = "Send the body with content-type: multipart/form-data, with a boundary."
# errors of the header reader for arbitrary data of clients
_UNREADABLE = (
    *(TinyTagException, ArithmeticError, LookupError, ValueError, TypeError, AttributeError),
    *(OSError, EOFError, MemoryError, RecursionError, struct.error),
)
_executor = ThreadPoolExecutor(_THREADS, "spool")


class UploadHandler(EndpointHandler):
    """The handler of a form or, at some endpoints, JSON."""

    _reader: FormReader | None = None
    _spool: Spool | None = None

    @property
    def limit_bytes(self) -> int:
        """Return the size of the largest form, or of the largest other body."""
        server = self.site.settings.server
        return server.max_body_bytes if self._reader is None else server.max_upload_bytes

    def check_content_type(self, content_type: str) -> None:
        """Find the boundary of a form. Raises Fault CONTENT_TYPE."""
        boundary = boundary_of(content_type)
        if boundary is not None:
            self._reader = FormReader(boundary)
            return
        assert isinstance(self.operation, Endpoint)
        if not self.operation.json:
            raise Fault(Condition.CONTENT_TYPE, _FORM)
        super().check_content_type(content_type)

    def check_key(self, key: KeyEntry) -> None:
        """Check the request head. A form is not unpacked."""
        super().check_key(key)
        if self._reader is not None and self._packed is not None:
            raise Fault(Condition.CONTENT_ENCODING)

    def hold_body(self) -> BodyHold | None:
        """Return the count of the form's bytes, among those on the disk."""
        if self._reader is None or self._call is None:
            return super().hold_body()
        key = self._call.head.key
        return self.site.spool_memory.hold(self._evict, key.user_id, key.id)

    def data_received(self, chunk: bytes) -> None:
        """Receive a chunk. A form has no total time limit, but must arrive steadily."""
        if self._reader is not None and not self._over:
            self.site.bodies.set(self, self.site.settings.server.body_timeout_s)
        super().data_received(chunk)

    def _keep(self, chunk: bytes) -> None:
        if self._reader is None:
            super()._keep(chunk)
            return
        self._count(self._size)
        try:
            self._reader.feed(chunk)
        except FormError as error:
            raise malformed(error) from None
        if self._spool is None and self._size <= IN_MEMORY_BYTES:
            if self._parts is None:
                self._parts = [chunk]
            else:
                keep_piece(self._parts, chunk)
            return
        if self._spool is None:
            self._spool = Spool(self.site.spool_dir, _executor)
            self._spool.on_drained = partial(self.connection.read_body, True)
            self._spool.add(self._take_body())
        self._spool.add(bytes(chunk))
        if self._spool.full:
            self.connection.read_body(False)

    def _forget_body(self) -> None:
        super()._forget_body()
        if self._spool is not None:
            self._spool.close()

    def complete(self, body: bytes) -> Coroutine[Any, Any, None] | None:
        """Relay the call. Its end frees the disk space."""
        if self._reader is None:
            return super().complete(body)
        return self._relay_form(self._reader, body)

    async def _relay_form(self, reader: FormReader, body: bytes) -> None:
        call, spool = self._call, self._spool
        assert call is not None
        self._running = True
        downstream = Downstream(self.connection, self.base_headers())
        try:
            try:
                form = form_of(reader.close(), body)
                if spool is not None:
                    spool.on_drained = None
                    await spool.finish()
                form = await self._measured(form)
            except FormError as error:
                self._end(malformed(error), downstream)
                return
            except Fault as fault:
                self._end(fault, downstream)
                return
            except OSError as error:
                log.error("cannot spool a body in %s: %s", self.site.spool_dir, error)
                self._end(Fault(Condition.UNAVAILABLE), downstream)
                return
            call.content = Content(b"", form, spool=spool)
            await self.site.relay.run(call, b"", downstream, None)
        finally:
            if self._hold is not None:
                self._hold.release()
            if spool is not None:
                spool.close()

    def _end(self, fault: Fault, downstream: Downstream) -> None:
        assert self._call is not None
        self.site.relay.end(self._call, Ending("refused", fault), downstream)

    async def _measured(self, form: Form) -> Form:
        """Return the form with the length of its audio if that is what is charged."""
        assert isinstance(self.operation, Endpoint)
        if not self.operation.sound or not form.files:
            return form
        place = form.files[0]
        opened: BinaryIO = BytesIO(form.body[place.start : place.end])
        if self._spool is not None:
            opened = cast(BinaryIO, BufferedReader(SpooledFile(self._spool, place)))
        loop = asyncio.get_running_loop()
        audio_ms = await loop.run_in_executor(_executor, _audio_ms, opened)
        if not audio_ms:
            audio_ms = (place.end - place.start) * _MS_PER_S // AUDIO_BYTES_PER_S
        return replace(form, audio_ms=audio_ms)


def _audio_ms(opened: BinaryIO) -> int:
    """Return the length of an audio file by its header; 0 if it is unknown. Runs in a thread."""
    try:
        seconds = TinyTag.get(file_obj=opened, tags=False).duration
    except _UNREADABLE:
        return 0
    return round(seconds * _MS_PER_S) if seconds and seconds > 0 else 0

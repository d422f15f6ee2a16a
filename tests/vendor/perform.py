"""Sending of one answer over one connection, with the timing and the faults of its script.

The only place that writes an answer to a socket. It does not decide about the content.
"""

from __future__ import annotations

import asyncio
import zlib
from email.utils import formatdate
from http import HTTPStatus

from tests.vendor.compose import Answer, Ending
from tests.vendor.http1 import ClientGone, Hangup, Wire
from tests.vendor.log import Entry

STREAM_GAP_MS = 2
FLOOD_BATCH = 16
GZIP_WINDOW_BITS = 31
LAST_CHUNK = b"0\r\n\r\n"


def encode_head(answer: Answer, *, keep_alive: bool) -> bytes:
    try:
        reason = HTTPStatus(answer.status).phrase
    except ValueError:
        reason = "Demo"
    lines = [
        f"HTTP/1.1 {answer.status} {reason}",
        f"date: {formatdate(usegmt=True)}",
        "server: demo",
        *([f"content-type: {answer.content_type}"] if answer.content_type else []),
        f"connection: {'keep-alive' if keep_alive else 'close'}",
    ]
    if answer.length is None:
        lines.append("transfer-encoding: chunked")
    else:
        lines.append(f"content-length: {answer.length}")
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


class Performance:
    """One answer being sent; `run` returns when it has ended properly.

    Raises Hangup if the script ended the connection, ClientGone if the client did.
    """

    def __init__(self, wire: Wire, answer: Answer, entry: Entry) -> None:
        self._wire = wire
        self._answer = answer
        self._script = answer.script
        self._entry = entry
        self._held = b""  # the head, if it goes out with the first bytes of the body
        self._gzip = None
        if answer.headers.get("content-encoding") == "gzip":
            self._gzip = zlib.compressobj(wbits=GZIP_WINDOW_BITS)

    async def run(self, *, keep_alive: bool) -> None:
        try:
            await self._before_head()
            self._entry.status = self._answer.status
            self._held = encode_head(self._answer, keep_alive=keep_alive)
            if self._answer.streaming:
                await self._flush_head()
            if self._script.stall_after_head:
                await self._end(Ending.STALL)
            await self._send_steps()
            await self._send_end()
            self._entry.finished = True
        except ClientGone:
            self._entry.gone_at_ms = self._wire.gone_at_ms
            raise

    async def _before_head(self) -> None:
        script = self._script
        if script.first_ms:
            await self._wire.pause(script.first_ms / 1000)
        if script.stall_before_head:
            await self._end(Ending.STALL)
        if script.reset_before_head:
            await self._end(Ending.RESET)
        if script.close_before_head:
            await self._end(Ending.CUT)

    async def _send_steps(self) -> None:
        script = self._script
        batch_max = FLOOD_BATCH if script.flood else 1
        gap_ms = script.ms
        if gap_ms is None:
            paced = (self._answer.streaming and not script.flood) or script.slow_body
            gap_ms = STREAM_GAP_MS if paced else 0
        batch: list[bytes] = []
        for step in self._answer.steps:
            if isinstance(step, Ending):
                await self._send_batch(batch)
                await self._end(step)
            else:
                if len(batch) == batch_max:
                    await self._send_batch(batch)
                    await self._rest(gap_ms)
                batch.append(step)
        await self._send_batch(batch)

    async def _rest(self, gap_ms: int) -> None:
        if gap_ms:
            await self._wire.pause(gap_ms / 1000)
        else:
            await asyncio.sleep(0)  # lets other connections run

    async def _send_batch(self, batch: list[bytes]) -> None:
        count = len(batch)
        data = b"".join(batch)
        batch.clear()
        if self._gzip is not None:
            data = self._gzip.compress(data) + self._gzip.flush(zlib.Z_SYNC_FLUSH)
        size = self._script.split if self._answer.streaming else None
        if size is None:
            await self._send(data)
        else:
            for start in range(0, len(data), size):
                await self._send(data[start : start + size])
                await asyncio.sleep(0)
        self._entry.chunks_sent += count

    async def _send(self, data: bytes) -> None:
        if not data:
            return
        if self._answer.length is None:
            data = b"%x\r\n%s\r\n" % (len(data), data)
        head, self._held = self._held, b""
        await self._wire.send(head + data)

    async def _flush_head(self) -> None:
        head, self._held = self._held, b""
        if head:
            await self._wire.send(head)

    async def _send_end(self) -> None:
        if self._gzip is not None:
            await self._send(self._gzip.flush())
        await self._flush_head()
        if self._answer.length is None:
            await self._wire.send(LAST_CHUNK)

    async def _end(self, ending: Ending) -> None:
        await self._flush_head()
        if ending is Ending.STALL:
            await self._wire.pause(None)
        if ending is Ending.RESET:
            self._wire.reset()
        else:
            self._wire.close()
        raise Hangup

"""The unpacking of compressed request bodies in bounded steps.

Pure: handlers.entries.intake decides when to continue and how to answer a broken body. Answers of
upstreams are unpacked in handlers.relay.upstream.
"""

import sys
import zlib
from collections.abc import Callable
from typing import Protocol

import brotli
from msgspec import Struct

from adapters.faults import Condition, Fault

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# A network chunk of 64 KiB can unpack to 64 MiB, so the output of a step is bounded. So is its
# input, since a byte of blocks without output costs many times as much. A step takes 0.1 ms, at
# worst 1 ms. Every connection may take one in each turn of the loop.
STEP_BYTES = 65_536
_OUTPUT_BYTES = 32_768
_ONLY_GZIP, _ONLY_ZLIB, _RAW_DEFLATE = 31, 15, -15  # window arguments of zlib
_ZLIB_METHOD_DEFLATE = 8
_ZSTD_WINDOW_LOG = 23  # the largest that RFC 9659 allows in a content-encoding
_BROTLI_WINDOW_BYTES = 16 << 20  # the largest of RFC 7932
# A chunk of two bytes takes twenty times its size as an object.
_SMALL_PIECE_BYTES = 1024


class _Machine(Protocol):
    """The state of one coding. `unpack` returns how many bytes of a portion it read, and about
    _OUTPUT_BYTES of their unpacked data. More unpacked data may remain inside."""

    @property
    def eof(self) -> bool: ...

    def unpack(self, portion: bytes | bytearray) -> tuple[int, bytes]: ...


class _Zlib:
    """The machine of zlib. Without a window argument it unpacks "deflate", which is zlib by the
    standard and raw deflate in many programs."""

    def __init__(self, window: int | None = None) -> None:
        self._machine = None if window is None else zlib.decompressobj(window)

    @property
    def eof(self) -> bool:
        return self._machine is not None and self._machine.eof

    def unpack(self, portion: bytes | bytearray) -> tuple[int, bytes]:
        machine = self._machine
        if machine is None:
            if not portion:
                return 0, b""
            is_zlib = portion[0] & 15 == _ZLIB_METHOD_DEFLATE
            machine = self._machine = zlib.decompressobj(_ONLY_ZLIB if is_zlib else _RAW_DEFLATE)
        piece = machine.decompress(portion, _OUTPUT_BYTES)
        return len(portion) - len(machine.unconsumed_tail) - len(machine.unused_data), piece


class _Zstd:
    """The machine of one zstd frame."""

    def __init__(self) -> None:
        window: dict[int, int] = {
            zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG,
        }
        self._machine = zstd.ZstdDecompressor(options=window)

    @property
    def eof(self) -> bool:
        return self._machine.eof

    def unpack(self, portion: bytes | bytearray) -> tuple[int, bytes]:
        machine = self._machine
        if not machine.needs_input and (piece := machine.decompress(b"", _OUTPUT_BYTES)):
            return 0, piece
        piece = machine.decompress(portion, _OUTPUT_BYTES)
        return len(portion) - len(machine.unused_data), piece


class _Brotli:
    """The machine of Brotli. Its output chunks are slightly longer than the limit that it gets."""

    def __init__(self) -> None:
        self._machine = brotli.Decompressor()

    @property
    def eof(self) -> bool:
        return bool(self._machine.is_finished())

    def unpack(self, portion: bytes | bytearray) -> tuple[int, bytes]:
        machine = self._machine
        if not machine.can_accept_more_data() and (piece := self._process(b"")):
            return 0, piece
        return len(portion), self._process(bytes(portion))

    def _process(self, portion: bytes) -> bytes:
        piece: bytes = self._machine.process(portion, output_buffer_limit=_OUTPUT_BYTES // 2)
        return piece


class _Coding(Struct, frozen=True):
    """A content-coding: its name in messages and its machine; the input bytes of a chunk and the
    cost of each in a step; its memory, which is `state_bytes` and as much of the window as is
    filled."""

    name: str
    machine: Callable[[], _Machine]
    input_bytes: int
    cost: int
    state_bytes: int
    window_bytes: int = 0


_GZIP = _Coding("gzip", lambda: _Zlib(_ONLY_GZIP), 8_192, 8, 48 << 10)
# Values of content-encoding, in lower case. zstd and br cost more, since they may put large tables
# before little data.
CODINGS = {
    "gzip": _GZIP,
    "x-gzip": _GZIP,
    "deflate": _Coding("deflate", _Zlib, 8_192, 8, 48 << 10),
    "zstd": _Coding("zstd", _Zstd, 2_048, 32, 320 << 10, 1 << _ZSTD_WINDOW_LOG),
    "br": _Coding("br", _Brotli, 2_048, 32, 320 << 10, _BROTLI_WINDOW_BYTES),
}


class PackedBody:
    """A compressed body: `feed` adds what arrives, `step` unpacks some of it. It never holds more
    than one chunk of unpacked data beyond `limit_bytes`."""

    __slots__ = ("_coding", "_left_bytes", "_limit_bytes", "_machine", "_packed", "_parts")

    def __init__(self, coding: str, limit_bytes: int) -> None:
        self._coding = CODINGS[coding]
        self._limit_bytes = self._left_bytes = limit_bytes  # left: what may still be unpacked
        self._machine = self._coding.machine()
        self._packed = bytearray()
        self._parts: list[bytes | bytearray] = []

    @property
    def held_bytes(self) -> int:
        """Return the bytes in memory: packed ones, unpacked ones, and the state of unpacking."""
        coding, unpacked_bytes = self._coding, self._limit_bytes - self._left_bytes
        window_bytes = min(coding.window_bytes, unpacked_bytes)
        return len(self._packed) + unpacked_bytes + coding.state_bytes + window_bytes

    def feed(self, packed: bytes) -> None:
        """Add the next chunk without unpacking it."""
        self._packed += packed

    def step(self) -> bool:
        """Unpack about STEP_BYTES. Return whether there is more to do. Raises Fault TOO_LARGE
        beyond the limit, and CONTENT_ENCODING for bytes that are not of the coding or follow its
        end."""
        done = 0
        while done < STEP_BYTES:
            input_bytes, output_bytes = self._unpack_piece()
            if not input_bytes and not output_bytes:
                return False  # the machine needs more input to continue
            done += input_bytes * self._coding.cost + output_bytes
        return True

    def take(self) -> bytes:
        """Return the body after the last `step`. Raises Fault CONTENT_ENCODING if it is
        truncated."""
        if not self._machine.eof:
            raise self._broken("ends too early")
        parts, self._parts = self._parts, []
        return b"".join(parts)

    def _unpack_piece(self) -> tuple[int, int]:
        """Unpack a chunk. Return the bytes read and unpacked; both are 0 if there is
        nothing to do."""
        machine, packed = self._machine, self._packed
        if machine.eof:
            if packed:
                raise self._broken("has bytes behind its end")
            return 0, 0
        try:
            input_bytes, piece = machine.unpack(packed[: self._coding.input_bytes])
        except (zlib.error, zstd.ZstdError, brotli.error) as error:
            raise self._broken("does not unpack") from error
        del packed[:input_bytes]
        self._left_bytes -= len(piece)
        if self._left_bytes < 0:
            raise Fault(Condition.TOO_LARGE)
        if piece:
            keep_piece(self._parts, piece)
        return input_bytes, len(piece)

    def _broken(self, what: str) -> Fault:
        name = self._coding.name
        message = f"The body is {name} by its content-encoding, but {what}."
        return Fault(Condition.CONTENT_ENCODING, message)


def keep_piece(parts: list[bytes | bytearray], piece: bytes) -> None:
    """Add a chunk to those before it. Small ones are merged, so that they take no extra memory."""
    if len(piece) >= _SMALL_PIECE_BYTES or not parts:
        parts.append(piece)
    elif isinstance(parts[-1], bytearray):
        parts[-1] += piece
    else:
        parts.append(bytearray(piece))


def unpacked_if_small(coding: str, packed: bytes, limit_bytes: int) -> bytes:
    """Unpack a whole compressed body at once. Return empty bytes if it is broken or over
    the limit."""
    body = PackedBody(coding, limit_bytes)
    body.feed(packed)
    try:
        while body.step():
            pass
        return body.take()
    except Fault:
        return b""

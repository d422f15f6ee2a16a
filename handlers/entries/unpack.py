"""The unpacking of gzipped request bodies, a bounded piece at a time.

Pure: handlers.entries.intake decides when to go on and how a broken body is answered. Answers of
upstreams are unpacked in handlers.relay.upstream.
"""

import zlib

from adapters.faults import Condition, Fault

GZIP = frozenset({"gzip", "x-gzip"})  # values of content-encoding, in lower case

# A network piece of 64 KiB can unpack to 64 MiB, so a step is bounded in its output; and in its
# input, since blocks without output cost eight times as much a byte. A step takes 0.1 ms, at worst
# 1 ms; every connection may take one in each turn of the loop.
STEP_BYTES = 65_536
_COST_OF_INPUT = 8
_INPUT_BYTES = 8_192
_OUTPUT_BYTES = 32_768
_ONLY_GZIP = 31  # zlib's window argument
STATE_BYTES = 48 << 10  # of zlib's machine, its window included
# A piece of two bytes takes twenty times its size as an object.
_SMALL_PIECE_BYTES = 1024


class PackedBody:
    """A gzipped body: `feed` takes what arrives, `step` unpacks some of it. It never holds more
    than one piece beyond `limit_bytes` of unpacked data."""

    __slots__ = ("_left_bytes", "_limit_bytes", "_machine", "_packed", "_parts")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = self._left_bytes = limit_bytes  # that may still be unpacked
        self._machine = zlib.decompressobj(_ONLY_GZIP)
        self._packed = bytearray()
        self._parts: list[bytes | bytearray] = []

    @property
    def held_bytes(self) -> int:
        """Bytes in memory: packed ones, unpacked ones, and the state of unpacking."""
        return len(self._packed) + self._limit_bytes - self._left_bytes + STATE_BYTES

    def feed(self, packed: bytes) -> None:
        """Take the next piece; nothing is unpacked yet."""
        self._packed += packed

    def step(self) -> bool:
        """Unpack about STEP_BYTES; return whether there is more to do. Raises Fault TOO_LARGE
        beyond the limit, CONTENT_ENCODING for bytes that are not gzip or follow its end."""
        done = 0
        while done < STEP_BYTES:
            input_bytes, output_bytes = self._unpack_piece()
            if not input_bytes and output_bytes < _OUTPUT_BYTES:
                return False  # what is left unpacked needs more bytes to go on
            done += input_bytes * _COST_OF_INPUT + output_bytes
        return True

    def take(self) -> bytes:
        """Return the body after the last `step`. Raises Fault CONTENT_ENCODING when truncated."""
        if not self._machine.eof:
            raise _broken("ends too early")
        parts, self._parts = self._parts, []
        return b"".join(parts)

    def _unpack_piece(self) -> tuple[int, int]:
        """Return the bytes read and unpacked; a full piece may have left more inside zlib."""
        machine, packed = self._machine, self._packed
        if machine.eof:
            if packed:
                raise _broken("has bytes behind its end")
            return 0, 0
        portion = packed[:_INPUT_BYTES]
        try:
            piece = machine.decompress(portion, _OUTPUT_BYTES)
        except zlib.error as error:
            raise _broken("does not unpack") from error
        input_bytes = len(portion) - len(machine.unconsumed_tail) - len(machine.unused_data)
        del packed[:input_bytes]
        self._left_bytes -= len(piece)
        if self._left_bytes < 0:
            raise Fault(Condition.TOO_LARGE)
        if piece:
            keep_piece(self._parts, piece)
        return input_bytes, len(piece)


def keep_piece(parts: list[bytes | bytearray], piece: bytes) -> None:
    """Add a piece of a body to those before it, so that small ones take no more than they have."""
    if len(piece) >= _SMALL_PIECE_BYTES or not parts:
        parts.append(piece)
    elif isinstance(parts[-1], bytearray):
        parts[-1] += piece
    else:
        parts.append(bytearray(piece))


def unpacked_if_small(packed: bytes, limit_bytes: int) -> bytes:
    """Unpack a whole gzipped body at once; empty when it is not gzip or beyond the limit."""
    body = PackedBody(limit_bytes)
    body.feed(packed)
    try:
        while body.step():
            pass
        return body.take()
    except Fault:
        return b""


def _broken(what: str) -> Fault:
    return Fault(
        Condition.CONTENT_ENCODING, f"The body is gzip by its content-encoding, but {what}."
    )

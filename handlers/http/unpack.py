"""Undoes the gzip of a request body, a bounded piece at a time.

Pure: no loop, no limits of its own beyond the one it is given; handlers.http.intake says when
to go on, and what comes of a body that is none. Answers of upstreams: handlers.relay.upstream.
"""

import zlib

from adapters.faults import Condition, Fault

GZIP = frozenset({"gzip", "x-gzip"})  # values of content-encoding, in lower case

# A network piece of 64 KiB can unpack to 64 MiB, so a step is bounded in what it makes; and in what
# it takes, for blocks that make nothing cost eight times as much a byte. It takes 0.1 ms, and less
# than 1 ms for bytes that are meant to be slow: every connection may have one in a loop turn.
STEP_BYTES = 65_536
_COST_OF_INPUT = 8
_INPUT_BYTES = 8_192
_OUTPUT_BYTES = 32_768
_ONLY_GZIP = 31  # zlib's window argument


class PackedBody:
    """A gzipped body on its way in: `feed` takes it as it comes, `step` unpacks some of it.

    Of what is unpacked it never holds more than a piece beyond `limit_bytes`.
    """

    __slots__ = ("_left_bytes", "_machine", "_packed", "_parts")

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = limit_bytes  # that may still be unpacked
        self._machine = zlib.decompressobj(_ONLY_GZIP)
        self._packed = bytearray()
        self._parts: list[bytes] = []

    def feed(self, packed: bytes) -> None:
        """Takes the next piece; nothing is unpacked yet."""
        self._packed += packed

    def step(self) -> bool:
        """Unpacks about STEP_BYTES; whether there is more to do. Fault E15 when what is unpacked is
        larger than the limit, E17 for bytes that are no gzip and for bytes behind its end."""
        done = 0
        while done < STEP_BYTES:
            taken, made = self._unpack_piece()
            if not taken and made < _OUTPUT_BYTES:
                return False  # what is left unpacked needs more bytes to go on
            done += taken * _COST_OF_INPUT + made
        return True

    def take(self) -> bytes:
        """The whole body, when `step` has nothing more to do; Fault E17 when it is cut off."""
        if not self._machine.eof:
            raise _broken("ends too early")
        parts, self._parts = self._parts, []
        return b"".join(parts)

    def _unpack_piece(self) -> tuple[int, int]:
        """(bytes taken, bytes made); a full piece made may have left more inside zlib."""
        machine, packed = self._machine, self._packed
        if machine.eof:
            if packed:
                raise _broken("has bytes behind its end")
            return 0, 0
        given = packed[:_INPUT_BYTES]
        try:
            made = machine.decompress(given, _OUTPUT_BYTES)
        except zlib.error as error:
            raise _broken("does not unpack") from error
        taken = len(given) - len(machine.unconsumed_tail) - len(machine.unused_data)
        del packed[:taken]
        self._left_bytes -= len(made)
        if self._left_bytes < 0:
            raise Fault(Condition.TOO_LARGE)
        if made:
            self._parts.append(made)
        return taken, len(made)


def unpacked_if_small(packed: bytes, limit_bytes: int) -> bytes:
    """What a whole gzipped body holds; empty when that is no gzip, or larger than the limit, which
    is meant to be so small that all is unpacked at once."""
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

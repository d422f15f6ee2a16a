"""The state that a worker reports once a second, in memory that it shares with the supervisor.

Each worker has a memory file: the supervisor creates and keeps it, only the worker writes it, and
it grows with its content (ADR 0018). A checksum reveals a half-written state. The state is preceded
by a counter that the worker's event loop increments, its heartbeat (ADR 0034). The Hub writes only
the counter. Standard library only.
"""

import binascii
import json
import os
import struct
import time
from collections.abc import Mapping

READ_TRIES = 3

_BEATS = struct.Struct("<Q")
STATE_AT = _BEATS.size
_HEAD = struct.Struct("<QQ")  # number of the state, length of its JSON; then comes the checksum
_CHECK = struct.Struct("<I")  # CRC-32 of head and JSON
_JSON_AT = _HEAD.size + _CHECK.size  # from the start of the state


class StateWriter:
    """The worker's side, by the descriptor of the file."""

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor
        self._number = 0
        self._beats = 0
        self._beaten_s = time.monotonic()

    def beat(self) -> None:
        """Count one more turn of the loop. Raises OSError if there is no memory left."""
        self._beats += 1
        self._beaten_s = time.monotonic()
        os.pwrite(self._file, _BEATS.pack(self._beats), 0)

    @property
    def silent_s(self) -> float:
        """Return the seconds since the last beat. For any thread."""
        return time.monotonic() - self._beaten_s

    def write(self, state: Mapping[str, object]) -> None:
        """Replace the state. Raises OSError if there is no memory left."""
        self._number += 1
        document = json.dumps(state).encode()
        head = _HEAD.pack(self._number, len(document))
        check = _CHECK.pack(binascii.crc32(document, binascii.crc32(head)))
        os.pwrite(self._file, head + check + document, STATE_AT)


class StateReader:
    """The supervisor's side, which creates the file. Raises OSError."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("sluice-worker", os.MFD_CLOEXEC)
        self._number = 0
        self._beats = bytes(_BEATS.size)

    def beaten(self) -> bool:
        """Return whether the loop has counted since the last call."""
        beats = os.pread(self.descriptor, _BEATS.size, 0)
        if len(beats) < _BEATS.size or beats == self._beats:
            return False
        self._beats = beats
        return True

    def read(self) -> Mapping[str, object] | None:
        """Return the state if it is complete and newer than the last one; else None."""
        for _ in range(READ_TRIES):
            data = os.pread(self.descriptor, os.fstat(self.descriptor).st_size, STATE_AT)
            if len(data) < _JSON_AT:
                return None
            number, length = _HEAD.unpack_from(data)
            if number == self._number:
                return None
            document = data[_JSON_AT : _JSON_AT + length]
            check = binascii.crc32(document, binascii.crc32(data[: _HEAD.size]))
            if (check,) == _CHECK.unpack_from(data, _HEAD.size):
                self._number = number
                state: Mapping[str, object] = json.loads(document)
                return state
        return None

    def close(self) -> None:
        os.close(self.descriptor)

"""The memory in which one worker counts and which the supervisor reads (ADR 0018, ADR 0021).

A file of the supervisor for each worker: a header of two words, the words of all series, and behind
them the names of the series, one JSON line each, in the order in which they were made. Only its
worker writes it. A word is one aligned store of 64 bits, so it is never torn; a name is there
before the header counts it. What was counted stays readable when the worker is killed.
"""

import json
import mmap
import os
import struct
from array import array
from typing import NamedTuple

from conf.metrics import COUNTED, Metric

WORDS = 1 << 20  # of 8 bytes; only pages that are used take memory
NAMES_MAX_BYTES = 1 << 24
ABSENT = (1 << 64) - 1
"""The value of a gauge that is not there any more."""

_HEADER = struct.Struct("<QQ")  # words in use, bytes of names
SCRATCH = 2  # index of words that nobody reads, enough for any series
_FIRST = SCRATCH + max(one.words for one in COUNTED.values())
_NAMES_AT = WORDS * 8


class WordTable:
    """The worker's side, by the descriptor of the file; `words` may be changed by index, `memory`
    has the same as bytes."""

    def __init__(self, descriptor: int) -> None:
        # All of it through memory: a limit on the size of files must not fail a call that counts.
        os.ftruncate(descriptor, _NAMES_AT + NAMES_MAX_BYTES)
        self.memory = mmap.mmap(descriptor, _NAMES_AT + NAMES_MAX_BYTES)
        self.words = memoryview(self.memory)[:_NAMES_AT].cast("Q")
        self.dropped = 0  # series that found no room
        self._used = _FIRST
        self._names_bytes = 0
        self.words[0], self.words[1] = self._used, 0

    def add(self, metric: Metric, labels: tuple[str, ...]) -> int:
        """The index of the first word of a new series; SCRATCH when there is no room."""
        first = self._used
        line = json.dumps([metric.name, labels, first]).encode() + b"\n"
        if first + metric.words > WORDS or self._names_bytes + len(line) > NAMES_MAX_BYTES:
            self.dropped += 1
            return SCRATCH
        at = _NAMES_AT + self._names_bytes
        self.memory[at : at + len(line)] = line
        self._used += metric.words
        self._names_bytes += len(line)
        # The words first: a name that the reader finds has its words.
        self.words[0], self.words[1] = self._used, self._names_bytes
        return first


class Series(NamedTuple):
    """A series and where its words begin."""

    metric: Metric
    labels: tuple[str, ...]
    first: int


class WordReader:
    """The supervisor's side; it makes the file. Raises OSError."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("sluice-metrics", os.MFD_CLOEXEC)
        self.series: list[Series] = []
        self._names_bytes = 0

    def read(self) -> "array[int]":
        """The words as they are; `series` names those that were there."""
        head = os.pread(self.descriptor, _HEADER.size, 0)
        words = array("Q")
        if len(head) < _HEADER.size:
            return words
        used, names_bytes = _HEADER.unpack(head)
        if names_bytes > self._names_bytes:
            self._read_names(names_bytes - self._names_bytes)
        data = os.pread(self.descriptor, used * 8, 0)
        words.frombytes(data)
        return words

    def close(self) -> None:
        os.close(self.descriptor)

    def _read_names(self, size: int) -> None:
        lines = os.pread(self.descriptor, size, _NAMES_AT + self._names_bytes)
        for line in lines.splitlines():
            name, labels, first = json.loads(line)
            self.series.append(Series(COUNTED[name], tuple(labels), first))
        self._names_bytes += len(lines)

"""The log of requests that reached the vendor: in memory within bounds and, if enabled, in a file.

The file gets its line after the request has arrived and before it is answered, so that it is true
even if a process of the test dies. The end of the answer is recorded in memory only.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.vendor.http1 import Request

ENTRIES_MAX = 100_000
BODY_SHOWN_BYTES = 64 * 1024
BODIES_BYTES_MAX = 256 * 1024 * 1024


@dataclass(slots=True)
class Entry:
    n: int
    at_ms: int
    method: str
    path: str
    headers: dict[str, str]
    body: str
    sha256: str
    connection: int
    family: str | None = None
    model: str | None = None
    stream: bool = False
    status: int | None = None
    chunks_sent: int = 0
    finished: bool = False
    gone_at_ms: int | None = None
    fault: str | None = None  # why these bytes were not a request

    def line(self) -> bytes:
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(values).encode() + b"\n"


class RequestLog:
    def __init__(self, path: Path | None = None) -> None:
        self._entries: deque[Entry] = deque()
        self._bodies_bytes = 0
        self._next = 1
        self._file: int | None = None
        if path is not None:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def arrived(self, request: Request, connection: int, fault: str | None = None) -> Entry:
        """Create the entry; `write` writes it to the file once its family and model are known."""
        entry = Entry(
            n=self._next,
            at_ms=time.time_ns() // 1_000_000,
            method=request.method,
            path=request.target,
            headers=request.headers,
            body=request.body[:BODY_SHOWN_BYTES].decode("utf-8", "replace"),
            sha256=hashlib.sha256(request.body).hexdigest(),
            connection=connection,
            fault=fault,
        )
        self._next += 1
        self._entries.append(entry)
        self._bodies_bytes += len(entry.body)
        while len(self._entries) > ENTRIES_MAX or self._bodies_bytes > BODIES_BYTES_MAX:
            self._bodies_bytes -= len(self._entries.popleft().body)
        return entry

    def write(self, entry: Entry) -> None:
        if self._file is not None:
            os.write(self._file, entry.line())

    def lines(self) -> Iterator[bytes]:
        return (entry.line() for entry in self._entries)

    def reset(self) -> None:
        self._entries.clear()
        self._bodies_bytes = 0
        self._next = 1

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

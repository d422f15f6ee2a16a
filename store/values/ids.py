"""Identifiers made by the application: ULIDs (48 bits of milliseconds, 80 random bits).

For ids of calls, ledger lines and all administered objects. No monotonic mode: the order within a
millisecond has no meaning anywhere in the store. Pure, except `now_ms` and `new_ulid`.
"""

import datetime
import os
import time
from functools import lru_cache

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

ULID_CHARS = 26
RANDOM_BYTES = 10
_TIME_CHARS = 10
_TIME_LIMIT_MS = 1 << 48
_VALUES = {char: value for value, char in enumerate(ALPHABET)}
_RANDOM_CHARS = ULID_CHARS - _TIME_CHARS
_DRAWN_AT_ONCE = 64  # random parts of ids, read from the kernel at once
_random_parts: list[str] = []  # pop is atomic, so two threads never get the same
os.register_at_fork(after_in_child=_random_parts.clear)
# The characters for 10 bits, and a character for each byte by its 5 low bits.
_PAIRS = [high + low for high in ALPHABET for low in ALPHABET]
_CHAR_OF_BYTE = (ALPHABET * 8).encode()


def now_ms() -> int:
    """Return wall-clock time in milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def ulid(at_ms: int, random_bytes: bytes) -> str:
    """Return 26 characters of Crockford base 32 for a time and 10 random bytes. Raises ValueError
    if they are out of range."""
    if not 0 <= at_ms < _TIME_LIMIT_MS or len(random_bytes) != RANDOM_BYTES:
        raise ValueError("a ULID is made of 48 bits of milliseconds and 10 random bytes")
    number = int.from_bytes(random_bytes)
    return _time_part(at_ms) + "".join([_PAIRS[number >> by & 1023] for by in range(70, -1, -10)])


def first_ulid(at_ms: int) -> str:
    """Return the lowest ULID of a time. Raises ValueError if it is out of range."""
    return ulid(at_ms, bytes(RANDOM_BYTES))


def new_ulid() -> str:
    """Return a ULID of the current time."""
    while True:
        try:
            return _time_part(now_ms()) + _random_parts.pop()
        except IndexError:
            _draw()


def _draw() -> None:
    drawn = os.urandom(_RANDOM_CHARS * _DRAWN_AT_ONCE)
    text = drawn.translate(_CHAR_OF_BYTE).decode()  # 5 bits of each byte
    begins = range(0, len(text), _RANDOM_CHARS)
    _random_parts.extend([text[begin : begin + _RANDOM_CHARS] for begin in begins])


def _time_part(at_ms: int) -> str:
    return _long_part(at_ms >> 10) + _PAIRS[at_ms & 1023]


@lru_cache(maxsize=1)
def _long_part(at: int) -> str:
    """Return all but two characters of the time part, which are the same for about a second."""
    return "".join([_PAIRS[at >> by & 1023] for by in (30, 20, 10, 0)])


def ulid_ms(text: str) -> int:
    """Return the milliseconds in a ULID. Raises ValueError if the text is not a ULID."""
    if len(text) != ULID_CHARS or text[0] > "7" or any(c not in _VALUES for c in text):
        raise ValueError(f"{text!r} is not a ULID")
    value = 0
    for char in text[:_TIME_CHARS]:
        value = value << 5 | _VALUES[char]
    return value


def day_at(at_ms: int) -> int:
    """Return the UTC day of a time in milliseconds, as the number yyyymmdd."""
    date = datetime.datetime.fromtimestamp(at_ms // 1000, datetime.UTC)
    return date.year * 10_000 + date.month * 100 + date.day


def day_begin_ms(day: int) -> int:
    """Return the milliseconds at which a UTC day (yyyymmdd) starts."""
    date = (day // 10_000, day // 100 % 100, day % 100)
    return int(datetime.datetime(*date, tzinfo=datetime.UTC).timestamp()) * 1000


def day_of(text: str) -> int:
    """Return the UTC day of a ULID as the number yyyymmdd: the `day` of its record."""
    return day_at(ulid_ms(text))

"""The figures of channels and groups in time windows: added sums, rates, percentiles.

Read from the sums of status_sums, in the caller's transaction. For status.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

import msgspec
import peewee
from peewee import fn

from store.channels.status_sums import LAST_DAY, LAST_MONTH, MINUTE, MINUTE_S, PROBE, SUMS, WINDOW_S
from store.db.database import portions, select_rows
from store.db.tables.channels import BOUNDS_MS, FIRST_BYTE, TOTAL, ChannelSums

WINDOWS = ("5m", "24h", "30d")

Part = tuple[int, str]
"""The index of the shortest of WINDOWS that the sums belong to, and the sums as a JSON array."""

_FIRST_BYTE = SUMS.index(FIRST_BYTE[0])
_TOTAL = SUMS.index(TOTAL[0])
_ZEROS = [0] * len(SUMS)
_COLUMNS = [ChannelSums._meta.fields[name] for name in SUMS]
_PAIR = (ChannelSums.name, ChannelSums.model)
_decode = msgspec.json.Decoder(list[int]).decode


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a window, from `sums` in the order of SUMS. None: unknown."""

    sums: Sequence[int] = (0,) * len(SUMS)

    def plus(self, ok: int, failed: int) -> "Figures":
        """Return these figures with more calls, of which nothing else is known."""
        return Figures((self.sums[0] + ok, self.sums[1] + failed, *self.sums[2:]))

    @property
    def calls(self) -> int:
        """Return the number of calls that count."""
        return self.sums[0] + self.sums[1]

    @property
    def success(self) -> float | None:
        """Return the part of the calls that succeeded."""
        return round(self.sums[0] / self.calls, 4) if self.calls else None

    @property
    def failed(self) -> int:
        """Return the number of calls that count and did not succeed."""
        return self.sums[1]

    @property
    def streams(self) -> int:
        """Return the number of streams that started, the basis of first-byte percentiles."""
        return sum(self.sums[_FIRST_BYTE:_TOTAL])

    @property
    def tokens_per_s(self) -> float | None:
        """Return the output rate of streams, from the first byte on."""
        tokens, generation_ms = self.sums[2:_FIRST_BYTE]
        return round(tokens * 1000 / generation_ms, 1) if generation_ms else None

    def first_byte_ms(self, percent: int) -> int | None:
        """Return a percentile of the time until a stream started."""
        return percentile(self.sums[_FIRST_BYTE:_TOTAL], percent)

    def total_ms(self, percent: int) -> int | None:
        """Return a percentile of the time until an answer was complete."""
        return percentile(self.sums[_TOTAL:], percent)


def percentile(buckets: Sequence[int], percent: int) -> int | None:
    """Return the time (ms) below which `percent` of a histogram lie, interpolated within its
    bucket, or None if it is empty. At most the last bound."""
    left = sum(buckets) * percent / 100
    if not left:
        return None
    low_ms = 0
    for count, high_ms in zip(buckets, BOUNDS_MS, strict=False):
        if count >= left:
            return round(low_ms + (high_ms - low_ms) * left / count)
        left -= count
        low_ms = high_ms
    return low_ms


def of_windows(parts: Sequence[Part]) -> dict[str, Figures]:
    """Return the figures of all WINDOWS, from the results of `recent_sums` and `running_sums`."""
    windows = [_ZEROS for _ in WINDOWS]
    for first, text in parts:
        row = _decode(text)
        # The sums of a window belong to all longer ones, too.
        for place in range(first, len(WINDOWS)):
            windows[place] = row if windows[place] is _ZEROS else [*map(add, windows[place], row)]
    return dict(zip(WINDOWS, map(Figures, windows), strict=True))


def recent_sums(
    db: peewee.Database, scope: str, names: Sequence[str], at_ms: int
) -> Iterator[tuple[str, str, Part]]:
    """Yield name, model and sums of minutes. Those outside the shortest window will soon be moved
    to hours."""
    within = ChannelSums.at_s > at_ms // 1000 - WINDOW_S - MINUTE_S
    for part in portions(names):
        query = ChannelSums.select(*_PAIR, within, _as_json(map(fn.SUM, _COLUMNS)))
        query = query.where(_rows_of(MINUTE, scope, part)).group_by(*_PAIR, within)
        for name, model, is_within, text in select_rows(db, query):
            yield name, model, (0 if is_within else 1, text)


def running_sums(
    db: peewee.Database, scope: str, names: Sequence[str]
) -> Iterator[tuple[str, str, Part, tuple[str, int, int]]]:
    """Yield name, model and sums of the longer windows, with last error, its time, and the last
    success."""
    latest = (ChannelSums.last_error, ChannelSums.last_failed_ms, ChannelSums.last_ok_ms)
    for first, span in ((1, LAST_DAY), (2, LAST_MONTH)):
        for part in portions(names):
            query = ChannelSums.select(*_PAIR, _as_json(_COLUMNS), *latest)
            query = query.where(_rows_of(span, scope, part) & (ChannelSums.at_s == 0))
            for name, model, text, *seen in select_rows(db, query):
                yield name, model, (first, text), tuple(seen)


def day_probes(db: peewee.Database) -> list[tuple[str, str, int, int]]:
    """Return channel, model and the numbers of successful and failed probes of the last 24
    hours."""
    row = ChannelSums
    query = row.select(*_PAIR, fn.SUM(row.ok), fn.SUM(row.failed))
    condition = row.span.in_((MINUTE, LAST_DAY)) & (row.scope == PROBE)
    rows = select_rows(db, query.where(condition).group_by(*_PAIR))
    return [(name, model, int(ok), int(failed)) for name, model, ok, failed in rows]


def _as_json(columns: Iterable[Any]) -> Any:
    # As one text, since drivers need time for each column.
    return fn.JSON_ARRAY(*columns).coerce(False)


def _rows_of(span: str, scope: str, names: Sequence[str]) -> Any:
    row = ChannelSums
    return (row.span == span) & (row.scope == scope) & row.name.in_(names)

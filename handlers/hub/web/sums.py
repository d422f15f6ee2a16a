"""Calls summed up, as pages show them: how they ended, tokens, money, first bytes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from store.calls.usage_stats import CLASSES
from store.channels.figures import percentile
from store.db.tables.channels import FIRST_BYTE
from store.values.pricing import format_money, parse_money

LEAST_STREAMS = 20
"""Of fewer streams no percentile is shown: it would be that of chance."""

_TOKENS = {
    "input": ("input_tokens", "cache_write_tokens", "cache_write_1h_tokens"),
    "cached": ("cache_read_tokens",),
    "output": ("output_tokens", "reasoning_tokens"),
}


@dataclass(slots=True)
class Sums:
    """Calls summed up; `first_bytes` is a histogram of the streams."""

    calls: int = 0
    ok: int = 0
    refused: int = 0
    client_gone: int = 0
    failed: int = 0
    cost_nanos: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    first_bytes: list[int] = field(default_factory=lambda: [0] * len(FIRST_BYTE))

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds a row of `usage_stats.stats`, with or without first bytes."""
        for name in ("calls", *CLASSES):
            setattr(self, name, getattr(self, name) + row[name])
        for name, columns in _TOKENS.items():
            setattr(self, name, getattr(self, name) + sum(row[column] for column in columns))
        self.cost_nanos += parse_money(row["cost"])
        if (first_bytes := row.get("first_bytes")) is not None:
            pairs = zip(self.first_bytes, first_bytes, strict=True)
            self.first_bytes = [a + b for a, b in pairs]

    def remove(self, part: "Sums") -> None:
        """Takes away some of the calls."""
        for name in ("calls", *CLASSES, "cost_nanos", *_TOKENS):
            setattr(self, name, getattr(self, name) - getattr(part, name))
        pairs = zip(self.first_bytes, part.first_bytes, strict=True)
        self.first_bytes = [a - b for a, b in pairs]

    @property
    def cost(self) -> str:
        """Decimal text."""
        return format_money(self.cost_nanos)

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.input + self.cached + self.output

    @property
    def counted(self) -> int:
        """Calls but those whose client left."""
        return self.calls - self.client_gone

    @property
    def share(self) -> float | None:
        """The part of those counted that went well; None without a call."""
        return self.ok / self.counted if self.counted else None

    @property
    def streams(self) -> int:
        """Streams that began."""
        return sum(self.first_bytes)

    def first_byte(self, percent: int) -> int | None:
        """A percentile of the time until a stream began, ms; None: there were too few."""
        enough = self.streams >= LEAST_STREAMS
        return percentile(self.first_bytes, percent) if enough else None

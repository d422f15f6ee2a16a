"""The columns of the table of calls, and what a row shows in them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handlers.hub.web.formats import failure_reason, is_upstream_fault, shape_of
from store.values.pricing import format_money

COLUMNS = (
    *("endpoint", "user", "key", "channel", "cost", "in", "cached", "out", "first", "total"),
    *("speed", "tries"),
)
"""Those that may be left out, in their order; time, result and model stay."""

OF_ALL = ("user", "channel")
TOKENS = ("in", "cached", "out", "first")
"""What is unknown of a call that failed: its reason stands there."""


def visible(hidden: list[str], *, everybody: bool) -> list[str]:
    """The columns that are shown."""
    return [name for name in COLUMNS if name not in hidden and (everybody or name not in OF_ALL)]


@dataclass(frozen=True, slots=True)
class Shown:
    """A call as its row shows it."""

    row: Mapping[str, Any]
    words: Mapping[str, str]

    @property
    def failed(self) -> bool:
        """Whether its reason takes the place of its tokens: nothing was delivered."""
        return self.row["outcome"] not in ("ok", "client_gone") and not self.output

    @property
    def upstreams_fault(self) -> bool:
        """Whether its reason is loud."""
        return is_upstream_fault(self.row["outcome"])

    @property
    def shape(self) -> str:
        """The shape of its result."""
        return shape_of(self.row["outcome"])

    @property
    def result(self) -> str:
        """The word of its result."""
        return self.words["codes.outcome_" + self.row["outcome"]]

    @property
    def reason(self) -> str:
        """Why it failed, in short."""
        return failure_reason(self.words, self.row["error_code"], self.row["error_message"]) or ""

    @property
    def status(self) -> int | str:
        """The HTTP status that was sent."""
        return "–" if self.row["status"] is None else int(self.row["status"])

    @property
    def endpoint(self) -> str:
        """The path; of long ones what differs."""
        path = str(self.row["endpoint"])
        return "…:" + path.rpartition(":")[2] if "{model}:" in path else path

    @property
    def cost(self) -> str:
        """Decimal text."""
        return format_money(self.row["cost_nanos"])

    @property
    def output(self) -> int:
        """Tokens that were made."""
        return int(self.row["output_tokens"] + self.row["reasoning_tokens"])

    @property
    def speed(self) -> int | None:
        """Tokens a second from the first byte on; None: no stream, or too short to tell."""
        first_ms, total_ms = self.row["ttft_ms"], self.row["duration_ms"]
        if not self.row["stream"] or first_ms is None or total_ms is None or not self.output:
            return None
        return round(self.output * 1000 / (total_ms - first_ms)) if total_ms > first_ms else None

    @property
    def tries(self) -> int:
        """How many attempts it took."""
        return len(json.loads(self.row["attempts"] or "[]"))

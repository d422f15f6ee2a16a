"""Results of sign-ins: a count of each result, and lines of those that fail, no more than a person
reads.

Names are in no line: people type their password into that field, too.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Literal

log = logging.getLogger("sluice.hub")

Outcome = Literal["ok", "wrong", "wrong_code", "locked", "busy", "not_linked", "provider"]

WINDOW_S = 60
LINES_OF_NETWORK_MAX = 10  # in a window; then a count at its end
LINES_MAX = 100  # of all networks
COUNT_LINES_MAX = 10  # at the end of a window, for the networks with most


class SignIns:
    """The results of one process. `count` takes each, for the metrics."""

    def __init__(self, count: Callable[[str], None] = lambda result: None) -> None:
        self._count = count
        self._ends_s = 0.0
        self._lines = 0
        self._written: Counter[str] = Counter()  # lines of a network
        self._left_out: Counter[str] = Counter()

    def ended(self, outcome: Outcome, network: str, now_s: float, reason: str = "") -> None:
        """One has ended; `reason`: further words for its line."""
        self._count(outcome)
        if outcome == "ok":
            return
        self.sweep(now_s)
        if not self._ends_s:
            self._ends_s = now_s + WINDOW_S
        if self._lines < LINES_MAX and self._written[network] < LINES_OF_NETWORK_MAX:
            self._lines += 1
            self._written[network] += 1
            shown = f"{outcome}: {reason}" if reason else outcome
            log.warning("a sign-in from %s failed: %s", network, shown)
        elif network in self._written or len(self._left_out) < LINES_MAX:
            self._left_out[network] += 1
        else:
            self._left_out["other networks"] += 1

    def sweep(self, now_s: float) -> None:
        """Writes what was left out when the window is over."""
        if not self._ends_s or now_s < self._ends_s:
            return
        for network, count in self._left_out.most_common(COUNT_LINES_MAX):
            log.warning("%d more sign-ins from %s failed within %d s", count, network, WINDOW_S)
        rest = self._left_out.most_common()[COUNT_LINES_MAX:]
        if rest:
            more = sum(count for _, count in rest)
            log.warning("%d more sign-ins from other networks failed within %d s", more, WINDOW_S)
        self._ends_s, self._lines = 0.0, 0
        self._written.clear()
        self._left_out.clear()

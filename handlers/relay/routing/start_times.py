"""How long answers usually take to begin, of each channel, model and kind of call.

Slow is what is slow for that channel: some models think before they speak. Sans-io. Imported by
health.py.
"""

import math

from handlers.relay.routing.breaker import Trial

SLOW_S = 5.0  # no start below this is slow, and no fault that comes sooner is late
SLOW_TIMES = 4.0  # a slow start takes so many times the usual
LEARNING = 1 / 16  # weight of a new start in what is usual
MAX_USUAL = 50_000


class StartTimes:
    """A moving average for each; one far above it counts as twice the average."""

    def __init__(self) -> None:
        self._usual_s: dict[tuple[str, str, str], float] = {}

    def learn(self, trial: Trial, start_s: float) -> None:
        """An answer began after so long."""
        name = trial.channel.id, trial.model, trial.kind
        usual_s = self._usual_s.get(name)
        if usual_s is None:
            if len(self._usual_s) >= MAX_USUAL:
                self._usual_s.clear()
            usual_s = start_s
        most_s = 2 * usual_s
        new_s = start_s if start_s < most_s else most_s  # quicker than min()
        self._usual_s[name] = usual_s + (new_s - usual_s) * LEARNING

    def is_slow(self, trial: Trial, start_s: float) -> bool:
        """Whether such a start is slow; none is while nothing is known."""
        if start_s <= SLOW_S:
            return False
        name = trial.channel.id, trial.model, trial.kind
        return start_s > SLOW_TIMES * self._usual_s.get(name, math.inf)

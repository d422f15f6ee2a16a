"""How many calls of last resort may ask a channel at one time that hangs, or limits us.

When the circuits of all candidates of a call are open, the least bad one is asked all the same. One
that fails quickly costs nothing by that; one that hangs, or says "too many requests", gets one call
at a time for each TRIALS_OF of the last WINDOW_S. Sans-io; times are of a monotonic clock, in s.
"""

import math

from handlers.relay.routing.breaker import RATE_LIMITED, TIMING_OUT, WINDOW_S, Trial

TRIALS_OF = 10
TRIAL_S = 1.0  # without an answer, after which a trial gives its place to another

HELD_BACK = frozenset({RATE_LIMITED, TIMING_OUT})
"""Reasons for which a channel of last resort gets a few calls at a time; else all of them."""


class LastResorts:
    """The calls of one worker at each channel, and those of last resort in flight."""

    def __init__(self) -> None:
        self._running: dict[str, dict[Trial, None]] = {}  # the oldest first
        self._calls: dict[str, int] = {}
        self._calls_before: dict[str, int] = {}  # of the window before
        self._window_ends_s = -math.inf

    def note(self, channel_id: str, now_s: float) -> None:
        """A call asks the channel, or would have."""
        if now_s >= self._window_ends_s:
            self._turn(now_s)
        calls = self._calls
        calls[channel_id] = calls.get(channel_id, 0) + 1

    def wait_s(self, channel_id: str, now_s: float) -> float:
        """How long until one more may ask; 0: now."""
        running = self._running.get(channel_id)
        while running:
            oldest = next(iter(running))
            if now_s - oldest.begun_s < TRIAL_S:
                break
            del running[oldest]
        if not running:
            return 0.0
        too_many = len(running) - max(1, int(self._calls_of(channel_id, now_s)) // TRIALS_OF)
        if too_many < 0:
            return 0.0
        return list(running)[too_many].begun_s + TRIAL_S - now_s

    def take(self, trial: Trial) -> None:
        """The trial takes a place."""
        trial.limited = True
        self._running.setdefault(trial.channel.id, {})[trial] = None

    def give_back(self, trial: Trial) -> None:
        """The trial was answered, or is over."""
        trial.limited = False
        running = self._running.get(trial.channel.id, {})
        running.pop(trial, None)
        if not running:
            self._running.pop(trial.channel.id, None)

    def _turn(self, now_s: float) -> None:
        follows = now_s < self._window_ends_s + WINDOW_S
        self._calls_before = self._calls if follows else {}
        self._window_ends_s = (self._window_ends_s if follows else now_s) + WINDOW_S
        self._calls = {}

    def _calls_of(self, channel_id: str, now_s: float) -> float:
        """Calls of the last WINDOW_S, those of the window before taken as evenly spread."""
        if now_s >= self._window_ends_s:
            self._turn(now_s)
        left = (self._window_ends_s - now_s) / WINDOW_S
        return self._calls.get(channel_id, 0) + left * self._calls_before.get(channel_id, 0)

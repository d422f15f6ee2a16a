"""Why a model is not available, as sentences: names of words, each with its values."""

from typing import Any

from handlers.hub.web.parts import At
from operations.availability import Why
from store.channels.figures import Figures
from store.channels.status import (
    DEGRADED,
    DISABLED,
    DOWN,
    MODEL_DISABLED,
    NO_CHANNEL,
    Status,
)

Reason = tuple[str, dict[str, Any]]
"""The name of a sentence, and what stands in its braces."""

_TOLD = frozenset(
    {
        *("failing", "timing_out", "errors", "slow", "rate_limited", "told_to_wait"),
        *("probe_failed", "fewer_channels", "no_channel", "model_disabled"),
    }
)
"""The reasons of a status for which there is a sentence."""


def reasons_of(status: Status, why: Why, day: Figures, at_ms: int) -> list[Reason]:
    """What is known of a model that is degraded, down or switched off: since when, why, when it is
    tried again, where it works."""
    if status.state not in (DEGRADED, DOWN, DISABLED):
        return []
    said = [] if status.reason in (NO_CHANNEL, MODEL_DISABLED) else [_begun(status)]
    if status.reason in _TOLD:
        known = {"well": status.well, "serving": status.serving, "group": status.name}
        said.append((f"status.why_{status.reason}", known))
    if day.failed and status.last_error and status.state != DISABLED:
        seen = {"failed": day.failed, "calls": day.calls, "error": status.last_error}
        said.append(("status.failed_24_h", seen))
    if status.retry_ms and status.retry_ms > at_ms:
        said.append(("status.retry", {"time": At(status.retry_ms, "time")}))
    if why.elsewhere:
        said.append(("status.works_in", {"groups": ", ".join(why.elsewhere)}))
    return said


def _begun(status: Status) -> Reason:
    if status.state == DISABLED:
        return "status.is_disabled", {"group": status.name}
    if status.since_ms is None:
        return f"status.{status.state}_now", {"group": status.name}
    since = {"group": status.name, "time": At(status.since_ms)}
    return f"status.{status.state}_since", since

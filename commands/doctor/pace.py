"""How a stream has come through: judged by the times at which its events arrived. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from commands.doctor.findings import Finding, failed, ok, warning

TOGETHER_S = 0.03
"""Events closer than this came together: they were sent 0.1 s apart."""
HELD_SHARE = 0.5
CLUSTERS_SHARE = 0.7
_CHECK = "stream"

UNBUFFERED = (
    "switch off buffering for the gateway's paths: nginx: proxy_buffering off; proxy_http_version"
    " 1.1; gzip off; and do not ignore X-Accel-Buffering. Others: flush at once"
)
LONGER = (
    "raise its time-outs above upstream.first_byte_timeout_s: nginx: proxy_read_timeout 620s;"
    " send_timeout 60s. Others: no write or response time-out"
)


@dataclass(slots=True)
class Arrivals:
    """A stream as it came: seconds from the request to each event; `cut`: why it broke off."""

    expected: int = 0
    interval_s: float = 0.1
    at_s: list[float] = field(default_factory=list)
    cut: str = ""


def judge(arrivals: Arrivals) -> list[Finding]:
    """Whether the stream was cut, held back, or came as it was sent."""
    count, at_s = len(arrivals.at_s), arrivals.at_s
    if arrivals.cut or count < arrivals.expected:
        after = f"{at_s[-1]:.1f} s" if at_s else "no event"
        told = f"the stream was cut after {count} of {arrivals.expected} events, {after}"
        return [failed(_CHECK, f"{told}: {arrivals.cut or 'it ended too early'}", LONGER)]
    if count < 2:
        return []
    span_s, sent_s = at_s[-1] - at_s[0], arrivals.interval_s * (count - 1)
    if span_s < sent_s * HELD_SHARE:
        told = (
            f"the stream is buffered: {count} events sent over {sent_s:.1f} s came within"
            f" {span_s:.1f} s, the first after {at_s[0]:.1f} s"
        )
        return [failed(_CHECK, told, UNBUFFERED)]
    clusters = _clusters(at_s)
    if clusters < count * CLUSTERS_SHARE:
        told = f"the stream is partly buffered: {count} events came in {clusters} bundles"
        return [warning(_CHECK, told, UNBUFFERED)]
    told = f"{count} events came one by one, the first after {at_s[0] * 1000:.0f} ms"
    return [ok(_CHECK, told)]


def _clusters(at_s: Sequence[float]) -> int:
    return 1 + sum(later - earlier > TOGETHER_S for earlier, later in pairwise(at_s))

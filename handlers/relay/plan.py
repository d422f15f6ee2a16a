"""Which channels a call may try, in which order: priority first, then a weighted draw.

Pure: channels and randomness in, an ordered list out. Health, affinity and limits join here.
"""

from collections.abc import Callable, Iterator, Sequence

from store.catalog import Channel


def ordered(channels: Sequence[Channel], random: Callable[[], float]) -> list[Channel]:
    """The channels in the order to try them.

    `channels` come sorted by priority, highest first. Inside one priority the order is drawn
    without replacement, each draw in proportion to the weights; `random` gives [0, 1).
    """
    if len(channels) == 1:
        return list(channels)
    out: list[Channel] = []
    for tier in _tiers(channels):
        while len(tier) > 1:
            out.append(tier.pop(_draw([channel.weight for channel in tier], random())))
        out.extend(tier)
    return out


def _tiers(channels: Sequence[Channel]) -> Iterator[list[Channel]]:
    tier: list[Channel] = []
    for channel in channels:
        if tier and tier[0].priority != channel.priority:
            yield tier
            tier = []
        tier.append(channel)
    if tier:
        yield tier


def _draw(weights: Sequence[int], point: float) -> int:
    """Index of the weight that `point`, in [0, 1), falls on; equal chances when all are 0."""
    total = sum(weights)
    if total <= 0:
        return int(point * len(weights))
    rest = point * total
    for index, weight in enumerate(weights):
        rest -= weight
        if rest < 0:
            return index
    return len(weights) - 1

"""Streams as the relay reads them."""

from adapters.bridge import Bridge


def fed(bridge: Bridge, chunk: bytes) -> bytes:
    """What is sent of a chunk that is offered to a bridge as the pump does."""
    out = bridge.feed_repeat(chunk) if bridge.aligned else None
    return bridge.feed(chunk) if out is None else out

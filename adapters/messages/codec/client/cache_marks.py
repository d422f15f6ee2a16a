"""Cache marks of clients, ``cache_control`` on tools and blocks. Imported by the decoders of this
folder."""

from typing import Any

from adapters.ir.parts import CacheMark
from adapters.ir.request import Ask
from adapters.messages.codec.client import reading

_TTLS_S = {"5m": 300, "1h": 3600}
_FIELD = "cache_control"


def decode_mark(block: dict[str, Any], path: str, asks: list[Ask]) -> CacheMark | None:
    """The mark of a tool or block of a client; None when it has none."""
    if block.get(_FIELD) is None:
        return None
    path = f"{path}.{_FIELD}"
    mark = reading.entry(block[_FIELD], path)
    asks.append(Ask("cache_mark", path))
    return CacheMark(_TTLS_S.get(reading.optional_text(mark.get("ttl"), f"{path}.ttl")))

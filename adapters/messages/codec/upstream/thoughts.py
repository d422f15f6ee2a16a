"""Thoughts as one text that brings them back to their maker, byte for byte. Imported by this
folder's codec; for whoever keeps such a text it has no meaning."""

from typing import Any

from adapters.json.jsonio import dumps, loads_or_none


def sealed_thought(thinking: str, signature: str) -> str:
    """A thought with what its maker knows it by, as ``thought_of`` reads it again."""
    block = {"type": "thinking", "thinking": thinking, "signature": signature}
    return dumps(block).decode("ascii")


def sealed_data(data: str) -> str:
    """A thought that is not shown at all."""
    return dumps({"type": "redacted_thinking", "data": data}).decode("ascii")


def thought_of(opaque: str) -> dict[str, Any] | None:
    """The block that was sealed; None for anything else."""
    block = loads_or_none(opaque.encode(errors="replace")) if opaque else None
    if not isinstance(block, dict):
        return None
    names = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}
    fields = names.get(str(block.get("type")))
    if fields is None or not all(isinstance(block.get(name), str) for name in fields):
        return None
    return {name: block[name] for name in ("type", *fields)}

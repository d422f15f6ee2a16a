"""Encrypted reasoning as text that can be read again: the hub has one string for it.

Imported by the upstream's side of this folder's codec.
"""

from typing import Any

from adapters.json.jsonio import dumps, loads_or_none


def seal(item: dict[str, Any]) -> str:
    """What brings a reasoning item back to its maker; empty when it has nothing encrypted."""
    content = item.get("encrypted_content")
    if not isinstance(content, str) or not content:
        return ""
    name = item.get("id")
    return dumps([name if isinstance(name, str) else "", content]).decode()


def unseal(opaque: str, text: str) -> dict[str, Any] | None:
    """The reasoning item that ``seal`` was given, with the text that the client knows of it; None
    for text of another making."""
    said = loads_or_none(opaque.encode(errors="replace")) if opaque else None
    if not isinstance(said, list) or [type(one) for one in said] != [str, str]:
        return None
    name, content = said
    summary = [{"type": "summary_text", "text": text}] if text else []
    item = {"type": "reasoning", "summary": summary, "encrypted_content": content}
    return {**item, "id": name} if name else item

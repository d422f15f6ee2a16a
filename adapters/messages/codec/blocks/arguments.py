"""Arguments of tool calls: objects in this family, JSON text in the hub. Imported by the codec."""

from typing import Any

from adapters.faults import Fault
from adapters.json.jsonio import loads


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call as an object; what is none is put into one, so that a call that went
    wrong does not fail a whole conversation."""
    if not text.strip():
        return {}
    try:
        value = loads(text.encode())
    except (Fault, UnicodeEncodeError):  # no JSON, or none that every reader takes
        return {"_raw": text.encode(errors="replace").decode()}
    return value if isinstance(value, dict) else {"value": value}

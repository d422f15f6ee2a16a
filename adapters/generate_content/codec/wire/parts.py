"""Parts that requests and answers write the same way: calls and signatures. Imported by
``codec``."""

import base64
from typing import Any

from adapters.ir.parts import ToolCall
from adapters.json.jsonio import dumps, loads_loose


def call_part(call: ToolCall, name: str) -> dict[str, Any]:
    """The part of a call, whose arguments are an object here; those of a tool for free text are one
    of its own."""
    said = {"input": call.arguments} if call.custom else arguments_of(call.arguments)
    named = {"id": call.id} if call.id else {}
    return {"functionCall": {**named, "name": name, "args": said}}


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments in a JSON text as an object. What is no JSON, or no object, stands in one."""
    whole, said = _read(text)
    if not whole:
        return {"_raw": text}
    return said if isinstance(said, dict) else {"value": said}


def is_whole(text: str) -> bool:
    """Whether the arguments of a call are complete JSON, or nothing."""
    return _read(text)[0]


def _read(text: str) -> tuple[bool, Any]:
    if not text.strip():
        return True, {}
    try:
        said = loads_loose(text.encode(errors="replace"))
        dumps(said)  # the lenient reader takes NaN and the like, which cannot be written
    except (ValueError, OverflowError):
        return False, None
    return True, said


def signature(opaque: str) -> str:
    """Opaque state in the field for signatures, which is base64: SDKs decode it."""
    return base64.b64encode(opaque.encode(errors="replace")).decode()


def signed(signature: str) -> bytes:
    """What a signature says, in either alphabet of base64; nothing when it is none."""
    plain = signature.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        return b""

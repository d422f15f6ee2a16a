"""Values that a browser carries from one request to the next: sealed, for one purpose, and for a
short time. Nobody but the Hub can read or make them."""

import json
import time
from collections.abc import Mapping
from typing import Any

from store.values.cipher import Cipher, Unreadable


def seal(cipher: Cipher, purpose: str, seconds: int, values: Mapping[str, Any]) -> str:
    """The values as a text for a cookie."""
    return cipher.encrypt(
        json.dumps({"values": values, "for": purpose, "until_s": time.time() + seconds})
    )


def opened(cipher: Cipher, purpose: str, token: str) -> dict[str, Any] | None:
    """The values of a text; None when it is of another purpose or nobody's, or its time is over."""
    try:
        carried = json.loads(cipher.decrypt(token))
    except Unreadable:
        return None
    if carried["for"] != purpose or time.time() >= carried["until_s"]:
        return None
    values = carried.get("values")  # none in those of the version before
    return values if isinstance(values, dict) else None

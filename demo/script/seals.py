"""What the vendor alone can make, and knows again: stands in for signatures and encryption.

Pure; imported by the families that sign what a model has thought.
"""

from __future__ import annotations

import hashlib
import hmac

# Of no worth, but that nobody else makes the same.
SECRET = b"of the scripted vendor"


def sign(data: bytes) -> bytes:
    """32 bytes that stand for `data`."""
    return hmac.digest(SECRET, data, hashlib.sha256)


def is_signed(data: bytes, signature: bytes) -> bool:
    """Whether `sign` has made this of `data`."""
    return hmac.compare_digest(sign(data), signature)

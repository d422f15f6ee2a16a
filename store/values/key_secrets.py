"""Secrets of API keys: generating, checking, digesting and displaying them. Pure.

A secret exists in clear only when it is created. The store has HMAC-SHA256 digests under a pepper
that is not in the database, so a stolen database reveals no key and cannot be searched for one.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

SECRET_PREFIX = "sk-slc-"
SECRET_RANDOM_BYTES = 20
CHECKSUM_CHARS = 7
MAX_SECRET_CHARS = 200
GIVEN_SECRET = re.compile(rf"[A-Za-z0-9._-]{{16,{MAX_SECRET_CHARS}}}", re.ASCII)
SHOWN_PREFIX_CHARS = 10
SHOWN_SUFFIX_CHARS = 4
PEPPER_ID_CHARS = 8


def make_secret(random_bytes: bytes | None = None) -> str:
    """Return a new secret: prefix, 160 random bits in base 32, and a checksum that reveals
    typos."""
    raw = secrets.token_bytes(SECRET_RANDOM_BYTES) if random_bytes is None else random_bytes
    body = SECRET_PREFIX + base64.b32encode(raw).decode().lower()
    return body + _checksum(body)


def checksum_ok(secret: str) -> bool:
    """Return False if a secret of our own form was mistyped. Others have no checksum and pass."""
    if not secret.startswith(SECRET_PREFIX):
        return True
    body, checksum = secret[:-CHECKSUM_CHARS], secret[-CHECKSUM_CHARS:]
    return body.startswith(SECRET_PREFIX) and checksum == _checksum(body)


def check_given(secret: str) -> None:
    """Raise ValueError (without the secret in it) if a secret brought from elsewhere is not
    usable."""
    if not GIVEN_SECRET.fullmatch(secret):
        raise ValueError("must have 16 to 200 characters of A-Z a-z 0-9 . _ -")
    if not checksum_ok(secret):
        raise ValueError(f"begins with {SECRET_PREFIX} but its checksum is wrong")


def digest(secret: str, pepper: str) -> bytes:
    """Return the 32 bytes under which a secret is stored."""
    return hmac.digest(pepper.encode(), secret.encode("utf-8", "surrogatepass"), "sha256")


def digests(secret: str, peppers: Sequence[str]) -> list[bytes]:
    """Return the digests under every pepper, in the same order (newest first)."""
    return [digest(secret, pepper) for pepper in peppers]


def pepper_id(pepper: str) -> str:
    """Return a short name of a pepper that does not reveal it."""
    return hashlib.sha256(b"sluice pepper " + pepper.encode()).hexdigest()[:PEPPER_ID_CHARS]


def shown_parts(secret: str) -> dict[str, str]:
    """Return the columns by which people recognize a key: a few of its first and its last four
    characters."""
    # Less is shown of a short given secret, so that the hidden part cannot be guessed.
    length = SHOWN_PREFIX_CHARS if secret.startswith(SECRET_PREFIX) else SHOWN_SUFFIX_CHARS
    return {"prefix": secret[:length], "last_four": secret[-SHOWN_SUFFIX_CHARS:]}


def _checksum(body: str) -> str:
    crc = binascii.crc32(body.encode("utf-8", "surrogatepass"))
    return base64.b32encode(crc.to_bytes(4)).decode().lower()[:CHECKSUM_CHARS]

"""Passwords of the Hub: which are allowed, and their hashes (argon2id).

Hashing and checking take tens of milliseconds and 64 MiB on purpose. Never do them on an event
loop.
"""

import functools
from collections.abc import Mapping
from pathlib import Path

import argon2

MAX_PASSWORD_BYTES = 1024
MIN_PASSWORD_CHARS = 12
COMMON_FILE = Path(__file__).parents[2] / "conf" / "common_passwords.txt"

FAULTS: Mapping[str, str] = {
    "short": f"must have at least {MIN_PASSWORD_CHARS} characters",
    "name": "must not be the user's name",
    "repeated": "must not be one character repeated",
    "common": "is among the first that are guessed; choose another",
}
"""Faults of a password, by the keys that pages use."""

_HASHER = argon2.PasswordHasher()


def fault_of(password: str, user: str) -> str | None:
    """Return the key of FAULTS that forbids a new password of this user, or None if it is allowed.
    All code that sets a password uses this rule. Existing passwords remain valid."""
    folded = password.casefold()
    if len(password) < MIN_PASSWORD_CHARS:
        return "short"
    if folded == user.casefold():
        return "name"
    if len(set(folded)) == 1:
        return "repeated"
    return "common" if folded in common() else None


@functools.cache
def common() -> frozenset[str]:
    """Return the passwords of COMMON_FILE, in lower case. Reads the file once."""
    return frozenset(COMMON_FILE.read_text(encoding="utf-8").split("\n")) - {""}


def hash_password(password: str) -> str:
    """Return an argon2id hash with its parameters and salt. Raises ValueError if the password is
    empty or over 1024 bytes."""
    if not 0 < len(password.encode()) <= MAX_PASSWORD_BYTES:
        raise ValueError(f"a password has 1 to {MAX_PASSWORD_BYTES} bytes")
    return _HASHER.hash(password)


def verify_password(password_hash: str | None, password: str) -> bool:
    """Return whether the hash is of this password. False for a missing or broken hash."""
    if password_hash is None or len(password.encode()) > MAX_PASSWORD_BYTES:
        return False
    try:
        return _HASHER.verify(password_hash, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False

"""Password hashes (argon2id) for signing in to the Hub.

Both functions take tens of milliseconds and 64 MiB on purpose: never call them on an event loop.
"""

import argon2

MAX_PASSWORD_BYTES = 1024

_HASHER = argon2.PasswordHasher()


def hash_password(password: str) -> str:
    """An argon2id hash with its parameters and salt; ValueError when empty or over 1024 bytes."""
    if not 0 < len(password.encode()) <= MAX_PASSWORD_BYTES:
        raise ValueError(f"a password has 1 to {MAX_PASSWORD_BYTES} bytes")
    return _HASHER.hash(password)


def verify_password(password_hash: str | None, password: str) -> bool:
    """True when the hash was made of this password; a missing or broken hash fits none."""
    if password_hash is None or len(password.encode()) > MAX_PASSWORD_BYTES:
        return False
    try:
        return _HASHER.verify(password_hash, password)
    except (argon2.exceptions.VerifyMismatchError, argon2.exceptions.InvalidHashError):
        return False
    except argon2.exceptions.VerificationError:
        return False

"""Sealing of upstream keys at rest (Fernet: AES-CBC and HMAC), with several cipher keys.

The newest cipher key seals, all of them open, so a key can be replaced without an interruption:
add the new one first, `rotate` every stored token, take the old one away. No database here.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from store.values.errors import StoreError

FINGERPRINT_CHARS = 16


class Unreadable(StoreError):
    """A sealed value cannot be opened with any of the cipher keys."""


class Cipher:
    """Seals and opens short texts with the cipher keys of secrets.toml, newest first."""

    def __init__(self, cipher_keys: Sequence[str]) -> None:
        if not cipher_keys:
            raise ValueError("a cipher needs at least one key")
        # Any string will do as a key: what Fernet is given is derived from it.
        secrets = [hashlib.sha256(b"sluice seal " + key.encode()).digest() for key in cipher_keys]
        self._box = MultiFernet([Fernet(base64.urlsafe_b64encode(s)) for s in secrets])
        self._marks = [
            hashlib.sha256(b"sluice mark " + key.encode()).digest() for key in cipher_keys
        ]

    def encrypt(self, text: str) -> str:
        """A token that `decrypt` opens; each call gives another one."""
        return self._box.encrypt(text.encode()).decode()

    def decrypt(self, token: str) -> str:
        """The text in a token; Unreadable when it was sealed with another key or altered."""
        try:
            return self._box.decrypt(token.encode()).decode()
        except InvalidToken:
            raise Unreadable(
                "a sealed value does not fit the cipher keys of secrets.toml"
            ) from None

    def rotate(self, token: str) -> str:
        """The same text sealed with the newest key; Unreadable as for `decrypt`."""
        try:
            return self._box.rotate(token.encode()).decode()
        except InvalidToken:
            raise Unreadable(
                "a sealed value does not fit the cipher keys of secrets.toml"
            ) from None

    def fingerprint(self, text: str) -> str:
        """A keyed digest that tells equal texts apart from others and shows nothing of them."""
        return _digest(self._marks[0], text)

    def recognises(self, fingerprint: str, text: str) -> bool:
        """True when the fingerprint was made of this text, under any of the cipher keys."""
        return any(hmac.compare_digest(fingerprint, _digest(mark, text)) for mark in self._marks)


def _digest(mark: bytes, text: str) -> str:
    return hmac.digest(mark, text.encode(), "sha256").hex()[:FINGERPRINT_CHARS]

"""Sealing of upstream keys at rest (Fernet: AES-CBC and HMAC), with several cipher keys.

The newest cipher key seals and all of them open, so a key can be replaced without an interruption:
add the new one, renew every stored token, remove the old one (`secrets rotate`). No database.
"""

import base64
import hashlib
import hmac
import importlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from store.values.errors import StoreError

FINGERPRINT_CHARS = 16


class Unreadable(StoreError):
    """A sealed value that none of the cipher keys opens."""


class Cipher:
    """A cipher for short texts, with the cipher keys of secrets.toml, newest first."""

    def __init__(self, cipher_keys: Sequence[str]) -> None:
        if not cipher_keys:
            raise ValueError("a cipher needs at least one key")
        # Any string is a valid key: the key for Fernet is derived from it.
        self._seals = [
            hashlib.sha256(b"sluice seal " + key.encode()).digest() for key in cipher_keys
        ]
        self._mark = hashlib.sha256(b"sluice mark " + cipher_keys[0].encode()).digest()

    @cached_property
    def _fernet(self) -> Any:
        # Loaded with the first value: the library takes 7 MiB, which an idle Hub does not need.
        return importlib.import_module("cryptography.fernet")

    @cached_property
    def _boxes(self) -> Sequence[Any]:
        return [self._fernet.Fernet(base64.urlsafe_b64encode(seal)) for seal in self._seals]

    @cached_property
    def _box(self) -> Any:
        return self._fernet.MultiFernet(self._boxes)

    def encrypt(self, text: str) -> str:
        """Return a token that `decrypt` opens. Each call returns a different one."""
        token: bytes = self._box.encrypt(text.encode())
        return token.decode()

    def decrypt(self, token: str) -> str:
        """Return the text in a token. Raises Unreadable if it was sealed with another key or
        altered."""
        try:
            text: bytes = self._box.decrypt(token.encode())
            return text.decode()
        except self._fernet.InvalidToken:
            raise Unreadable(
                "a sealed value does not fit the cipher keys of secrets.toml"
            ) from None

    def renewed(self, token: str) -> str | None:
        """Return a token by the newest key for the text of an older one. Return None if it is by
        the newest already, or if none of the keys opens it."""
        if self.by_newest(token) or not self.opens(token):
            return None
        return self.encrypt(self.decrypt(token))

    def opens(self, token: str) -> bool:
        """Return whether any of the keys opens a token."""
        return self._fits(self._box, token)

    def by_newest(self, token: str) -> bool:
        """Return whether a token was sealed with the newest key."""
        return self._fits(self._boxes[0], token)

    def holds(self, token: str, text: str) -> bool:
        """Return whether a token has this text. False if it cannot be opened."""
        try:
            return hmac.compare_digest(self.decrypt(token).encode(), text.encode())
        except Unreadable:
            return False

    def fingerprint(self, text: str) -> str:
        """Return a keyed digest that permanently identifies a text without revealing anything of
        it."""
        return hmac.digest(self._mark, text.encode(), "sha256").hex()[:FINGERPRINT_CHARS]

    def _fits(self, box: Any, token: str) -> bool:
        try:
            box.decrypt(token.encode())
        except self._fernet.InvalidToken:
            return False
        return True

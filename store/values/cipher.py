"""Sealing of upstream keys at rest (Fernet: AES-CBC and HMAC), with several cipher keys.

The newest cipher key seals, all of them open, so a key can be replaced without an interruption:
add the new one, renew every stored token, take the old one away (`secrets rotate`). No database.
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
        boxes = [Fernet(base64.urlsafe_b64encode(s)) for s in secrets]
        self._newest, self._box = boxes[0], MultiFernet(boxes)
        self._mark = hashlib.sha256(b"sluice mark " + cipher_keys[0].encode()).digest()

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

    def renewed(self, token: str) -> str | None:
        """A token by the newest key for the text of an older one; None when there is nothing to do:
        it is by the newest already, or none of the keys opens it."""
        if self.by_newest(token) or not self.opens(token):
            return None
        return self.encrypt(self.decrypt(token))

    def opens(self, token: str) -> bool:
        """Return whether any of the keys opens a token."""
        return _opens(self._box, token)

    def by_newest(self, token: str) -> bool:
        """Return whether a token was sealed with the newest key."""
        return _opens(self._newest, token)

    def holds(self, token: str, text: str) -> bool:
        """Return whether a token has this text; one that cannot be opened has another."""
        try:
            return hmac.compare_digest(self.decrypt(token).encode(), text.encode())
        except Unreadable:
            return False

    def fingerprint(self, text: str) -> str:
        """A keyed digest that stands for a text from now on and shows nothing of it."""
        return hmac.digest(self._mark, text.encode(), "sha256").hex()[:FINGERPRINT_CHARS]


def _opens(box: Fernet | MultiFernet, token: str) -> bool:
    try:
        box.decrypt(token.encode())
    except InvalidToken:
        return False
    return True

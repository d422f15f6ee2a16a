"""Tokens of forms against requests that other sites make browsers send (XSRF).

A token is a MAC over its owner, a session or a browser, by the newest of `cookie_secrets`; each of
them verifies. It begins with random characters, so that no two answers have the same: what an
attacker learns of compressed answers is worthless.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence

SALT_CHARS = 16
MAX_CHARS = SALT_CHARS + 2 * hashlib.sha256().digest_size
_PURPOSE = "form"


def random_value() -> str:
    """A value of which no browser has a second one."""
    return secrets.token_hex(SALT_CHARS)


def make(keys: Sequence[str], owner: str) -> str:
    """A new token."""
    salt = secrets.token_hex(SALT_CHARS // 2)
    return salt + _mac(keys[0], salt, owner)


def fits(keys: Sequence[str], owner: str, token: str) -> bool:
    """Return whether a token was made for this owner, by any of the keys; nobody owns an empty
    one."""
    if not owner or len(token) != MAX_CHARS or not token.isascii():
        return False
    salt, mac = token[:SALT_CHARS], token[SALT_CHARS:]
    return any(hmac.compare_digest(_mac(key, salt, owner), mac) for key in keys)


def _mac(key: str, salt: str, owner: str) -> str:
    text = f"{_PURPOSE}\0{salt}\0{owner}".encode("utf-8", "surrogatepass")
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()

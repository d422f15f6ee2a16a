"""Grants: each lets the Hub make one call as a key whose secret it does not have (ADR 0041).

A grant is a text of URL-safe characters, `payload.mac`. The payload names the key, the session that
the call is made for, the address of its client, the digest of the request, the end of the grant and
a random id; the MAC is by a cookie secret and the run of the supervisor, which starts Hub and
workers: another node's Hub, or one before a restart, makes grants that this node does not take.
Nothing here remembers a grant: that it is used once is the relay's business.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

import msgspec

GRANT_HEADER = "x-sluice-grant"
GRANT_LIFE_MS = 60_000
MAX_CHARS = 2048
_ID_BYTES = 16


class Grant(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The payload of a grant. `expires_ms` is Unix time by the clock of the node; `digest` as
    `request_digest` returns it."""

    key_id: str
    session_id: str
    client_ip: str
    digest: str
    expires_ms: int
    id: str


def request_digest(method: str, target: str, body: bytes) -> str:
    """Return the digest of a request; `target`: path and query as in the request line."""
    head = f"{method} {target}\n".encode("utf-8", "surrogatepass")
    return hashlib.sha256(head + body).hexdigest()


class GrantMaker:
    """Makes and reads the grants of one run of a supervisor. `cookie_secrets`: the newest first;
    each of them verifies, the first one makes."""

    def __init__(self, cookie_secrets: Sequence[str], run: str) -> None:
        purpose = f"sluice grant {run}".encode()
        self._keys = [
            hmac.digest(secret.encode(), purpose, "sha256") for secret in cookie_secrets if run
        ]

    def make(
        self, key_id: str, session_id: str, client_ip: str, digest: str, *, now_ms: int
    ) -> str:
        """Return a grant for one request, valid for GRANT_LIFE_MS."""
        grant = Grant(
            key_id,
            session_id,
            client_ip,
            digest,
            now_ms + GRANT_LIFE_MS,
            secrets.token_urlsafe(_ID_BYTES),
        )
        payload = base64.urlsafe_b64encode(msgspec.json.encode(grant))
        mac = hmac.digest(self._keys[0], payload, "sha256")
        return f"{payload.decode()}.{base64.urlsafe_b64encode(mac).decode()}"

    def read(self, text: str, *, now_ms: int) -> Grant | None:
        """Return a grant; None for one that is malformed, over, or not of this run."""
        payload, _, mac_text = text.partition(".")
        if len(text) > MAX_CHARS or not text.isascii():
            return None
        try:
            mac = base64.b64decode(mac_text, altchars=b"-_", validate=True)
            packed = payload.encode()
            macs = [hmac.digest(key, packed, "sha256") for key in self._keys]
            if True not in [hmac.compare_digest(mac, own) for own in macs]:
                return None
            grant = msgspec.json.decode(base64.urlsafe_b64decode(packed), type=Grant)
        except (binascii.Error, ValueError):
            return None
        # A clock that was set back may not lengthen its life either.
        return grant if now_ms < grant.expires_ms <= now_ms + GRANT_LIFE_MS else None

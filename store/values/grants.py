"""Grants, each of which lets the Hub make one call as a key whose secret it does not have (ADR
0041).

A grant is a text of URL-safe characters, `payload.mac`. The payload has the key, the session for
which the call is made, the client address, the digest of the request, the end of the grant and a
random id. The MAC depends on a cookie secret and on the run of the supervisor that starts Hub and
workers. Therefore a node rejects grants of another node's Hub, and those from before a restart.
Nothing here remembers a grant; the relay ensures that it is used only once.
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
    """The payload of a grant. `expires_ms` is Unix time by the clock of the node. `digest` is from
    `request_digest`."""

    key_id: str
    session_id: str
    client_ip: str
    digest: str
    expires_ms: int
    id: str


def request_digest(method: str, target: str, body: bytes) -> str:
    """Return the digest of a request. `target` is path and query as in the request line."""
    head = f"{method} {target}\n".encode("utf-8", "surrogatepass")
    return hashlib.sha256(head + body).hexdigest()


class GrantMaker:
    """A maker and reader of the grants of one supervisor run. `cookie_secrets` are newest first:
    each of them verifies, the first one signs."""

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
        """Return a grant, or None if it is malformed, expired, or not of this run."""
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
        # A clock that was set back must not extend its life either.
        return grant if now_ms < grant.expires_ms <= now_ms + GRANT_LIFE_MS else None

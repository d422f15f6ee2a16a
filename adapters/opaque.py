"""State that only its maker understands, on its way through a client of another family.

Signatures and encrypted reasoning are wrapped with where they come from, so that they go back to
the same upstream key of the same channel and nowhere else, for the user alone whose call made
them. The wrapper is signed: a client could otherwise have one account's state sent to another, or
use what it has seen of another user's. Pure; imported by what joins two families.
"""

import base64
import hashlib
import hmac
import re
from functools import lru_cache

from adapters.json.jsonio import Struct

PREFIX = "gw1."
_SHAPE = re.compile(r"gw1\.([a-z_]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)\.([A-Za-z0-9_-]{16})")
_MAC_BYTES = 12


class Origin(Struct, frozen=True, gc=False):
    """Maker of opaque state: family, channel with upstream key, and the secret that signs it;
    ``user`` is the id of whom it is made for, which is signed, too, and not shown.

    ``mark`` stands for channel and key: ``[A-Za-z0-9_-]+``, no secret. What ``older`` secrets have
    signed is still taken.
    """

    family: str
    mark: str
    secret: bytes
    user: str
    older: tuple[bytes, ...] = ()


def wrap(value: str, origin: Origin) -> str:
    """``value`` with its origin, in ASCII without blanks or quotes."""
    # An upstream may send halves of characters, which UTF-8 does not have.
    head = f"{PREFIX}{origin.family}.{origin.mark}.{_text(value.encode(errors='replace'))}"
    return f"{head}.{_mac(head, origin.user, origin.secret)}"


def unwrap(text: str, origin: Origin) -> str | None:
    """What was wrapped with the same origin; None for anything else."""
    found = _SHAPE.fullmatch(text)
    if found is None or (found[1], found[2]) != (origin.family, origin.mark):
        return None
    head = text[: found.end(3)]
    secrets = (origin.secret, *origin.older)
    if not any(
        hmac.compare_digest(_mac(head, origin.user, secret), found[4]) for secret in secrets
    ):
        return None
    return base64.urlsafe_b64decode(found[3] + "=" * (-len(found[3]) % 4)).decode()


@lru_cache(maxsize=4096)
def mark_of(channel_id: str, fingerprint: str) -> str:
    """The ``mark`` of an upstream key of a channel; ``fingerprint`` is empty when it has none."""
    return _text(hashlib.sha256(f"{channel_id}/{fingerprint}".encode()).digest()[:_MAC_BYTES])


def _mac(head: str, user: str, secret: bytes) -> str:
    return _text(hmac.digest(secret, f"{user}\n{head}".encode(), hashlib.sha256)[:_MAC_BYTES])


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

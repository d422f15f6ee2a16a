"""Opaque state: data that only its maker can read, carried through a client of another family.

Signatures and encrypted reasoning are wrapped with their origin, so that they return only to the
same upstream key of the same channel, and only for the user whose call made them. The wrapper is
signed, because a client could otherwise send one account's state to another, or use another user's
state. Imported by the families, by the code that joins two of them, and by the relay.
"""

import base64
import hashlib
import hmac
import re
from functools import lru_cache

from adapters.json.jsonio import Struct, replace_fields

PREFIX = "gw1."  # of all wrapped state; followed by the maker's family and a point
_SUMMARY = "summary"  # in place of a family: a summary of a conversation
_SHAPE = re.compile(r"gw1\.([a-z_]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)\.([A-Za-z0-9_-]{16})")
_MAC_BYTES = 12


class Origin(Struct, frozen=True, gc=False):
    """The maker of opaque state: family, channel with upstream key, and the secret that signs it.

    ``user``: the id of the user for whom it is made; signed but not readable in the wrapper.
    ``mark`` stands for channel and key: ``[A-Za-z0-9_-]+``, not secret. State signed with one of
    the ``older`` secrets is still accepted.
    """

    family: str
    mark: str
    secret: bytes
    user: str
    older: tuple[bytes, ...] = ()


def wrap(value: str, origin: Origin) -> str:
    """Return ``value`` with its origin, in ASCII without blanks or quotes."""
    # An upstream may send half surrogate pairs, which UTF-8 cannot encode.
    head = f"{PREFIX}{origin.family}.{origin.mark}.{_text(value.encode(errors='replace'))}"
    return f"{head}.{_mac(head, origin.user, origin.secret)}"


def unwrap(text: str, origin: Origin) -> str | None:
    """Return the value if it was wrapped with the same origin; None otherwise."""
    match = _SHAPE.fullmatch(text)
    if match is None or (match[1], match[2]) != (origin.family, origin.mark):
        return None
    head = text[: match.end(3)]
    secrets = (origin.secret, *origin.older)
    if not any(
        hmac.compare_digest(_mac(head, origin.user, secret), match[4]) for secret in secrets
    ):
        return None
    return _decoded(match[3])


def wrap_summary(text: str, origin: Origin) -> str:
    """Return a conversation's summary, wrapped so that any channel may read it again."""
    return wrap(text, replace_fields(origin, family=_SUMMARY, mark="-"))


def summary_of(text: object) -> str | None:
    """Return a wrapped summary; None for anything else. The signature is not checked, because the
    summary is text of the client's own conversation, like everything that it sends."""
    match = _SHAPE.fullmatch(text) if isinstance(text, str) else None
    return _decoded(match[3]) if match is not None and match[1] == _SUMMARY else None


def is_wrapped(text: str) -> bool:
    """Return true if text has the shape that ``wrap`` returns, for any origin."""
    return _SHAPE.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def mark_of(channel_id: str, fingerprint: str) -> str:
    """Return the ``mark`` of a channel's upstream key; ``fingerprint`` is empty without a key."""
    return _text(hashlib.sha256(f"{channel_id}/{fingerprint}".encode()).digest()[:_MAC_BYTES])


def _mac(head: str, user: str, secret: bytes) -> str:
    return _text(hmac.digest(secret, f"{user}\n{head}".encode(), hashlib.sha256)[:_MAC_BYTES])


def _decoded(text: str) -> str:
    # A wrapper that nobody signed may hold anything.
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode(errors="replace")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

"""Taking secrets out of text that an upstream wrote, before a client or a record sees it.

An upstream's message may hold our account's key, address, organisation or e-mail address.
Over-masking is harmless, under-masking is not. Standard library only; imported by ``conditions``
and ``faults``.
"""

import re
from collections.abc import Sequence

MAX_MESSAGE_CHARS = 500
_LOOKED_AT_CHARS = 4 * MAX_MESSAGE_CHARS  # masked before it is cut: half a key is still a secret
_MIN_SECRET_CHARS = 4  # shorter "secrets" would eat ordinary words
MASK = "***"

_SECRET_SHAPES = re.compile(
    r"""
      \b[a-z][a-z0-9+.-]*://[^\s"'<>)\]}]+  # URLs
    | (?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+  # e-mail addresses
    | \b(?:bearer|basic)\s+[\w.~+/=*-]{6,}  # credentials as in a header
    | \b(?:sk|pk|rk|gsk|xai|hf|nvapi|pplx|ghp|glpat)[-_][\w*.-]{6,}  # keys by prefix
    | \b(?:key|api)[-_](?=[\w*.-]*[\d*])[\w*.-]{6,}
    | \bAIza[\w*-]{6,} | \bAKIA[A-Z0-9]{8,} | \bya29\.[\w.-]+ | \beyJ[\w-]{6,}[\w.-]*
    | \b(?:org|proj|acct|account|user|cus|wrkspc|workspace|tenant)[-_][A-Za-z0-9]*\d[\w-]*  # ids
    | \b(?:org|proj|acct|wrkspc)-[\w-]{6,}
    | \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b  # UUIDs
    | \bprojects/[\w-]+ | \bproject[ _](?:number:?[ ])?\d{6,}  # cloud projects
    | \b(?:[a-z0-9-]+\.)+(?:com|net|org|io|ai|dev|cloud|cn|local|internal)\b(?::\d+)?(?:/[^\s"']*)?
    | \b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?  # IPv4 addresses
    | (?<![\w+/-])(?=[\w+/-]*\d)[\w+/-]{40,}={0,2}  # long opaque tokens
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")


def clean_message(text: str, secrets: Sequence[str] = ()) -> str:
    """Return the first 500 characters of ``text`` as one line, with secrets masked.

    ``secrets`` are exact strings to mask wherever they stand; keys, tokens, URLs, host names,
    e-mail and IP addresses and ids of accounts are masked by their shape.
    """
    text = _CONTROL.sub(" ", text[:_LOOKED_AT_CHARS])
    for secret in secrets:
        if len(secret) >= _MIN_SECRET_CHARS:
            text = text.replace(secret, MASK)
    return _SECRET_SHAPES.sub(MASK, text).strip()[:MAX_MESSAGE_CHARS]

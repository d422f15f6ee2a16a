"""Takes credentials out of log lines, whoever wrote them there.

Nothing in this program logs a credential on purpose; this is for texts of others that end up in a
line: an exception's message, a URL, a model's name. Known by their shape: keys and tokens of this
gateway, upstream keys by the prefixes of vendors, credentials as in a header or a query, passwords
in addresses.
"""

import re

MASK = "***"

_SHAPES = re.compile(
    r"""
      (?P<scheme>\b(?:bearer|basic)(?:\s|%20|\+)+)[\w.~+/=*-]{4,}  # as in Authorization
    | (?P<name>\b(?:x-api-key|x-goog-api-key|api[-_]?key|authorization|proxy-authorization|cookie
        |set-cookie|password|passwd|pepper|secret|token)\b\\*["']?\s*[:=]\s*(?:b?\\*["'])?)
        (?!(?:bearer|basic)\b)[^\s"'\\,;&)}\]]{4,}
    | (?P<query>[?&](?:key|api_key|access_token|token)=)[^&\s"'\\]+
    | (?P<address>://)[^/@\s"'\\]+(?=@)  # user and password of a URL
    | \b(?:sk|pk|rk|slt|ghp|glpat|xai|hf|nvapi|pplx|gsk)[-_][\w.*-]{6,}
    | \bAIza[\w-]{10,} | \bAKIA[A-Z0-9]{12,} | \bya29\.[\w.-]+ | \beyJ[\w-]{8,}\.[\w.-]+
    """,
    re.VERBOSE | re.IGNORECASE,
)


def redact(text: str) -> str:
    """The text with every credential replaced by `***`."""
    return _SHAPES.sub(_masked, text)


def _masked(found: re.Match[str]) -> str:
    return (found[found.lastgroup] if found.lastgroup else "") + MASK

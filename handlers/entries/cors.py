"""Cross-origin requests of browsers: the headers that let pages of the origins in
`server.cors_origins` read answers of the relay port (fetch.spec.whatwg.org, "HTTP extensions").

Pure functions. Keys are in headers, never in cookies, so no header here allows a browser to send
its credentials.
"""

from collections.abc import Mapping

from handlers.http.connection import Header

ANY = "*"
MAX_AGE_S = 7200  # the longest time for which browsers remember a preflight
_METHOD_FIELD, _HEADERS_FIELD = "access-control-request-method", "access-control-request-headers"
_READABLE: Header = ("Access-Control-Expose-Headers", "*")
_PREFLIGHT: tuple[Header, ...] = (
    ("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE"),
    ("Access-Control-Max-Age", str(MAX_AGE_S)),
)


def answer_headers(request: Mapping[str, str], origins: frozenset[str]) -> tuple[Header, ...]:
    """Return the headers of an answer to a request with these headers (names in lower case); none
    if its origin is not one of `origins`."""
    allowed = _allowed(request, origins)
    return (*allowed, _READABLE) if allowed else ()


def is_preflight(request: Mapping[str, str], origins: frozenset[str]) -> bool:
    """Return whether a request with OPTIONS is the preflight of a page of an allowed origin."""
    return _METHOD_FIELD in request and bool(_allowed(request, origins))


def preflight_headers(request: Mapping[str, str]) -> tuple[Header, ...]:
    """Return the headers of an answer to a preflight in addition to `answer_headers`. All headers
    that the page wants to send are allowed by name, because `*` does not allow `Authorization`."""
    names = request.get(_HEADERS_FIELD)
    return (*_PREFLIGHT, ("Access-Control-Allow-Headers", names)) if names else _PREFLIGHT


def _allowed(request: Mapping[str, str], origins: frozenset[str]) -> tuple[Header, ...]:
    origin = request.get("origin")
    if origin is None:
        return ()
    if ANY in origins:
        return (("Access-Control-Allow-Origin", ANY),)
    if origin in origins:
        return (("Access-Control-Allow-Origin", origin), ("Vary", "Origin"))
    return ()

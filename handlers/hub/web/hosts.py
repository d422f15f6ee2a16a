"""Names that the Hub answers to, and where a form may come from.

A page of another site can lead a name of its own to the Hub's address (DNS rebinding), and can send
forms here; browsers say both in Host, Origin and Sec-Fetch-Site. What a client does not say is not
held against it: scripts and old browsers say nothing.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

OPEN_PATH = "/livez"
SAME_ORIGIN = "same-origin"
OWN_SITES = (SAME_ORIGIN, "none")  # of Sec-Fetch-Site; none: somebody has typed the address


def is_served(host: str, path: str, public_url: str) -> bool:
    """Return whether a request with this Host is answered: any without a public URL, else its name,
    loopback names, and addresses."""
    if not public_url or path == OPEN_PATH:
        return True
    name = _name_of(host)
    return name == (urlsplit(public_url).hostname or "") or _is_local(name)


def is_foreign(origin: str | None, site: str | None, host: str, public_url: str) -> bool:
    """Return whether a change comes from a page of another site, by the headers Origin and
    Sec-Fetch-Site. Behind a proxy that changes Host only the browser knows its own site."""
    if site is not None and site not in OWN_SITES:
        return True
    if origin is None or site == SAME_ORIGIN:
        return False
    scheme, _, place = origin.lower().partition("://")
    if not place or scheme not in ("http", "https"):
        return True
    return place != _without_default_port(host.lower(), scheme) and origin.lower() != _origin(
        public_url
    )


def _origin(url: str) -> str:
    parts = urlsplit(url.lower())
    return f"{parts.scheme}://{_without_default_port(parts.netloc, parts.scheme)}"


def _without_default_port(host: str, scheme: str) -> str:
    return host.removesuffix(":443" if scheme == "https" else ":80")


def _name_of(host: str) -> str:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def _is_local(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

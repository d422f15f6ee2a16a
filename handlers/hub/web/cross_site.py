"""Protection against requests that other sites make browsers send: checks of Host and Origin, form
tokens, encrypted cookies.

A page of another site can point a host name of its own at the Hub's address (DNS rebinding), and it
can send forms to the Hub. Browsers reveal both in Host, Origin and Sec-Fetch-Site. Requests without
these headers are accepted, since scripts and old browsers send none.

A form token is a MAC over its owner (a session or a browser) by the newest of `cookie_secrets`; a
MAC by any of them is valid. The token begins with random characters, so that no two responses
contain the same token and nothing can be learned about it from the size of compressed responses.
"""

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from store.values.cipher import Cipher, Unreadable

OPEN_PATH = "/livez"
SAME_ORIGIN = "same-origin"
OWN_SITES = (SAME_ORIGIN, "none")  # values of Sec-Fetch-Site; none: the user typed the address
SALT_CHARS = 16
MAX_CHARS = SALT_CHARS + 2 * hashlib.sha256().digest_size
_PURPOSE = "form"

# ---- Host and Origin -----------------------------------------------------------------------------


def is_served(host: str, path: str, public_url: str) -> bool:
    """Return whether a request with this Host is answered. Without a public URL every Host is;
    otherwise only the URL's host name, loopback names and IP addresses."""
    if not public_url or path == OPEN_PATH:
        return True
    name = _host_name(host)
    return name == (urlsplit(public_url).hostname or "") or _is_local(name)


def is_foreign(origin: str | None, site: str | None, host: str, public_url: str) -> bool:
    """Return whether a page of another site sent a change, by Origin and Sec-Fetch-Site. Behind a
    proxy that rewrites Host, only Sec-Fetch-Site shows whether the site is the Hub's."""
    if site is not None and site not in OWN_SITES:
        return True
    if origin is None or site == SAME_ORIGIN:
        return False
    scheme, _, netloc = origin.lower().partition("://")
    if not netloc or scheme not in ("http", "https"):
        return True
    return netloc != _without_default_port(host.lower(), scheme) and origin.lower() != _origin(
        public_url
    )


def _origin(url: str) -> str:
    parts = urlsplit(url.lower())
    return f"{parts.scheme}://{_without_default_port(parts.netloc, parts.scheme)}"


def _without_default_port(host: str, scheme: str) -> str:
    return host.removesuffix(":443" if scheme == "https" else ":80")


def _host_name(host: str) -> str:
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


# ---- form tokens ---------------------------------------------------------------------------------


def make_form_token(keys: Sequence[str], owner: str) -> str:
    """Return a new token for an owner."""
    salt = secrets.token_hex(SALT_CHARS // 2)
    return salt + _mac(keys[0], salt, owner)


def is_form_token(keys: Sequence[str], owner: str, token: str) -> bool:
    """Return whether a token was made for this owner with any of the keys. False for an empty
    owner."""
    if not owner or len(token) != MAX_CHARS or not token.isascii():
        return False
    salt, mac = token[:SALT_CHARS], token[SALT_CHARS:]
    return any(hmac.compare_digest(_mac(key, salt, owner), mac) for key in keys)


def _mac(key: str, salt: str, owner: str) -> str:
    text = f"{_PURPOSE}\0{salt}\0{owner}".encode("utf-8", "surrogatepass")
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()


# ---- encrypted cookies ---------------------------------------------------------------------------


def seal(cipher: Cipher, purpose: str, seconds: int, values: Mapping[str, Any]) -> str:
    """Encrypt values for a cookie that is valid for one purpose and `seconds`."""
    return cipher.encrypt(
        json.dumps({"values": values, "for": purpose, "until_s": time.time() + seconds})
    )


def unseal(cipher: Cipher, purpose: str, token: str) -> dict[str, Any] | None:
    """Return the values of an encrypted cookie. None: it is for another purpose, forged or
    expired."""
    try:
        content = json.loads(cipher.decrypt(token))
    except Unreadable:
        return None
    if content["for"] != purpose or time.time() >= content["until_s"]:
        return None
    values: dict[str, Any] = content["values"]
    return values

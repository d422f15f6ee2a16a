"""Checks of the strings in the operator's document: names, URLs, keys, networks.

Each takes a string and returns it, perhaps normalised, or raises ValueError with the fact and the
cure; what may be a secret is never in the message. Pure. For document_fields.py.
"""

import difflib
import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from store.keys import check_given
from store.passwords import MAX_PASSWORD_BYTES

MAX_NAME_CHARS = 128
MAX_UPSTREAM_NAME_CHARS = 256
MAX_URL_CHARS = 1024

_MODEL_NAME = re.compile(r"[A-Za-z0-9._:/@-]{1,128}", re.ASCII)
_HEADER_VALUE = re.compile(r"[\x21-\x7e]{1,4096}", re.ASCII)
_VERSION_END = re.compile(r"/v\d+(?:alpha|beta)?\d*$", re.ASCII)
_ENDPOINT_ENDS = ("/chat/completions", "/responses", "/messages")


def nearest(word: str, options: Iterable[str]) -> str:
    """'; did you mean "x"?' for the option most like the word, or nothing."""
    close = difflib.get_close_matches(word, list(options), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def name(value: str) -> str:
    """A name of a user, group, channel or key, unchanged; ValueError."""
    if not 1 <= len(value) <= MAX_NAME_CHARS or not value.isprintable() or value != value.strip():
        raise ValueError(
            f"must have 1 to {MAX_NAME_CHARS} printable characters and no space at an end"
        )
    return value


def model_name(value: str) -> str:
    """A public model name, unchanged; ValueError."""
    bad = ".." in value or "//" in value or value.startswith("/") or value.endswith("/")
    if bad or not _MODEL_NAME.fullmatch(value):
        raise ValueError(
            "must have 1 to 128 of A-Z a-z 0-9 . _ : / @ -, no .. or //, and no / at an end"
        )
    return value


def model_or_all(value: str) -> str:
    """A public model name or `*`."""
    return value if value == "*" else model_name(value)


def upstream_name(value: str) -> str:
    """The name of a model at its vendor."""
    if not 1 <= len(value) <= MAX_UPSTREAM_NAME_CHARS or not value.isprintable():
        raise ValueError(f"must have 1 to {MAX_UPSTREAM_NAME_CHARS} printable characters")
    return value


def upstream_key(value: str) -> str:
    """A credential that can stand in a header line."""
    if not _HEADER_VALUE.fullmatch(value):
        raise ValueError("must have 1 to 4096 visible ASCII characters and no space")
    return value


def password(value: str) -> str:
    """A password of a person, of any characters."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode") from None
    if not 1 <= size <= MAX_PASSWORD_BYTES:
        raise ValueError(f"must have 1 to {MAX_PASSWORD_BYTES} bytes")
    return value


def given_secret(value: str) -> str:
    """A secret of a key that its owner has already."""
    check_given(value)
    return value


def network(value: str) -> str:
    """An address or a network, in its canonical form."""
    try:
        return str(ipaddress.ip_network(value))
    except ValueError:
        raise ValueError(
            f'"{value}" is no address and no network like 10.0.0.0/8 (bits after the prefix zero)'
        ) from None


def base_url(value: str) -> str:
    """An http or https URL without version path, endpoint, credentials or query."""
    url = value.rstrip("/")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or len(value) > MAX_URL_CHARS or not value.isascii() or not value.isprintable():
        raise ValueError("must be a URL like https://api.example.com")
    if " " in value or "\\" in value:
        raise ValueError("must not hold spaces or backslashes")
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or password; put the upstream key into keys")
    if "?" in url or "#" in url:
        raise ValueError("must end with the path, without ? or #")
    for ending in _ENDPOINT_ENDS:
        if url.endswith(ending):
            raise ValueError(f'must not name an endpoint; leave "{ending}" out')
    version = _VERSION_END.search(url)
    if version:
        raise ValueError(f'must not end in a version path; write "{url[: version.start()]}"')
    return url

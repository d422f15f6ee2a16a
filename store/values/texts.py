"""Checks of the strings in the operator's document: names, URLs, keys, networks.

Each takes a string and returns it, perhaps normalized, or raises ValueError with the fact and the
remedy; a possible secret is never in the message. For fields.py. Pure, except for reading files of
this machine that such a text names. A path may lead to a FIFO, a device or a terminal, on which
opening or reading would block, so only regular files are read, and only up to a limit.
"""

import difflib
import ipaddress
import os
import re
import ssl
import stat
from collections.abc import Callable, Iterable
from urllib.parse import SplitResult, quote, unquote, urlsplit

from store.values.key_secrets import check_given
from store.values.passwords import MAX_PASSWORD_BYTES

DOTS = (".", "..")
"""Names that no address can contain: browsers resolve them, escaped or not."""
PAGES_OF_LISTS = ("new", "draft")
"""Names of pages of a list that are in the place of an object's name."""
MAX_NAME_CHARS = 128
MAX_UPSTREAM_NAME_CHARS = 256
MAX_URL_CHARS = 1024
MAX_CA_FILE_BYTES = 1024 * 1024

_MODEL_NAME = re.compile(r"[A-Za-z0-9._:/@-]{1,128}", re.ASCII)
_VERSION_END = re.compile(r"/v\d+(?:alpha|beta)?\d*$", re.ASCII)
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
PROXY_SCHEMES = ("http", "https", "socks5")
# Headers of framing and routing, those that the relay needs to read the answer, and credentials,
# which belong in `keys`.
KEPT_HEADERS = frozenset(
    (
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("upgrade", "host", "content-length", "content-encoding", "content-type", "expect"),
        *("accept", "accept-encoding", "proxy-authenticate", "proxy-authorization"),
        *("authorization", "x-api-key", "api-key", "x-goog-api-key"),
    )
)
_ENDPOINT_ENDS = ("/chat/completions", "/responses", "/messages")


def closest(word: str, options: Iterable[str], most: int) -> list[str]:
    """Return the options most similar to the word, the best first."""
    return difflib.get_close_matches(word, list(options), n=most)


def nearest(word: str, options: Iterable[str]) -> str:
    """Return '; did you mean "x"?' with the option most similar to the word, or nothing."""
    close = closest(word, options, 1)
    return f'; did you mean "{close[0]}"?' if close else ""


def name(value: str) -> str:
    """Return a name of a user, group, channel or key, unchanged. Raises ValueError."""
    if not 1 <= len(value) <= MAX_NAME_CHARS or not value.isprintable() or value != value.strip():
        raise ValueError(
            f"must have 1 to {MAX_NAME_CHARS} printable characters and no space at an end"
        )
    return value


def segment(value: str) -> str:
    """Return a name as one segment of the path of its page, percent-encoded."""
    if value in DOTS or value in PAGES_OF_LISTS:
        return f"%{ord(value[0]):02X}{value[1:]}"
    return quote(value, safe="")


def model_name(value: str) -> str:
    """Return a public model name, unchanged. Raises ValueError."""
    bad = ".." in value or "//" in value or value.startswith("/") or value.endswith("/")
    if bad or not _MODEL_NAME.fullmatch(value):
        raise ValueError(
            "must have 1 to 128 of A-Z a-z 0-9 . _ : / @ -, no .. or //, and no / at an end"
        )
    return value


def model_or_all(value: str) -> str:
    """Return a public model name or `*`."""
    return value if value == "*" else model_name(value)


def upstream_name(value: str) -> str:
    """Return the name of a model at its vendor."""
    if not 1 <= len(value) <= MAX_UPSTREAM_NAME_CHARS or not value.isprintable():
        raise ValueError(f"must have 1 to {MAX_UPSTREAM_NAME_CHARS} printable characters")
    return value


def _checked(pattern: re.Pattern[str], message: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(message)
        return value

    return check


upstream_key = _checked(
    re.compile(r"[\x21-\x7e]{1,4096}", re.ASCII),
    "must have 1 to 4096 visible ASCII characters and no space",
)
header_value = _checked(
    re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]{0,4094}[\x21-\x7e])?", re.ASCII),
    "must have 1 to 4096 printable ASCII characters and no space at an end",
)
shared_id = _checked(
    re.compile(r"[\x21-\x29\x2b\x2d-\x7e]{1,255}\*?|\*", re.ASCII),
    "must have 1 to 256 visible ASCII characters, no comma, and a * only at its end",
)


def header_name(value: str) -> str:
    """Return the name of a header that a channel may add, in lower case."""
    name = value.lower()
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError("is not a header name: letters, digits and - _ . only")
    if name in KEPT_HEADERS:
        remedy = "credentials go into keys" if "auth" in name or "key" in name else "leave it out"
        raise ValueError(f"is set by the gateway itself; {remedy}")
    return name


mail_address = _checked(
    re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9.-]{1,189}", re.ASCII),
    "must be an address like bob@example.com",
)


def password(value: str) -> str:
    """Return a person's password, of any characters. `passwords.fault_of` decides whether it is
    allowed."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode") from None
    if size > MAX_PASSWORD_BYTES:
        raise ValueError(f"must have at most {MAX_PASSWORD_BYTES} bytes")
    return value


def given_secret(value: str) -> str:
    """Return a key's secret that its owner already has."""
    check_given(value)
    return value


def network(value: str) -> str:
    """Return an address or a network, in its canonical form."""
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        try:
            meant = ipaddress.ip_network(value, strict=False)
        except ValueError:
            example = "write an address, as 192.0.2.7, or a network, as 192.0.2.0/24"
            raise ValueError(f'"{value}": {error}; {example}') from None
        raise ValueError(
            f'"{value}" has bits behind its prefix; the network is {meant},'
            f" the address alone {value.partition('/')[0]}"
        ) from None


def base_url(value: str) -> str:
    """Return an http or https URL without version path, endpoint, credentials or query."""
    url = upstream_url(value)
    if message := version_at_end(url):
        raise ValueError(message)
    return url


def version_at_end(url: str) -> str:
    """Return the message about a URL that ends in a version path, empty if it does not."""
    version = _VERSION_END.search(url)
    if version is None:
        return ""
    return f'must not end in a version path; write "{url[: version.start()]}"'


def upstream_url(value: str) -> str:
    """Return an http or https URL without endpoint, credentials or query."""
    url = value.rstrip("/")
    parts = _split(url)
    good = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
    if (
        parts is None
        or not good
        or len(value) > MAX_URL_CHARS
        or not value.isascii()
        or not value.isprintable()
    ):
        raise ValueError("must be a URL like https://api.example.com")
    if " " in value or "\\" in value:
        raise ValueError("must not contain spaces or backslashes")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or password; put the upstream key into keys")
    if "?" in url or "#" in url:
        raise ValueError("must end with the path, without ? or #")
    for ending in _ENDPOINT_ENDS:
        if url.endswith(ending):
            raise ValueError(f'must not name an endpoint; leave "{ending}" out')
    return url


def proxy(value: str) -> str:
    """Return a proxy's URL, with optional user and password, percent-encoded."""
    url = value.rstrip("/")
    parts = _split(url)
    hostname, port = (parts.hostname, parts.port) if parts else (None, None)
    if parts is None or parts.scheme not in PROXY_SCHEMES or not hostname or not port:
        schemes = ", ".join(PROXY_SCHEMES)
        raise ValueError(f"must be a URL like http://proxy.example:3128 ({schemes}; with the port)")
    if len(value) > MAX_URL_CHARS or not value.isascii() or not value.isprintable():
        raise ValueError(f"must have at most {MAX_URL_CHARS} printable ASCII characters")
    login, _, _ = parts.netloc.rpartition("@")
    if parts.path or "?" in url or "#" in url or " " in url or "\\" in url:
        raise ValueError("must end with the port: no path, blank, ? or # (in a login: %3F, %23)")
    if "@" in login or not unquote(login).isprintable():
        raise ValueError("must have user and password percent-encoded, as in user:p%40ss@")
    return url


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        return parts if parts.port != 0 else None
    except ValueError:
        return None


def ca_file(value: str) -> str:
    """Return the absolute path of a file with certificates in PEM, after reading it."""
    if not value.startswith("/") or len(value) > MAX_URL_CHARS or not value.isprintable():
        raise ValueError("must be an absolute path like /etc/ssl/private-ca.pem")
    # Comments between certificates may have any characters; the certificates are ASCII.
    text = read_regular(value, MAX_CA_FILE_BYTES).decode("ascii", "replace").replace("\ufffd", "?")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ValueError(f"the file {value} contains no certificates in PEM") from None
    return value


def read_regular(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Return the content of a regular file. Raises ValueError with the fact for anything else, and
    for a file of more than `most_bytes`."""
    try:
        with open(path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{path} is not a regular file")
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise ValueError(f"the file {path} cannot be read: {error.strerror}") from None
    if len(content) > most_bytes:
        raise ValueError(f"the file {path} has more than {most_bytes} bytes")
    return content


def _open(path: str, flags: int) -> int:
    # Otherwise, opening a FIFO would wait for its writer, and a terminal might become the
    # controlling terminal of the process.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)

"""The check of the store's address before it is used.

Pure. Messages name the fault and the character that must be percent-encoded, never the password.
store/db/database.py opens the address.
"""

import ipaddress
import re
import urllib.parse

SQLITE = "sqlite:///"
MYSQL = "mysql://"
FORM = (
    "sqlite:///FILE or mysql://host:port/database expected, with user:password@ before the host"
    " (special characters of the password percent-encoded), further hosts of a cluster after commas"
)
# Characters of a user, a password or a database name that need no escape (RFC 3986).
_PLAIN = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=-]", re.ASCII)
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}", re.ASCII)
MAX_HOST_CHARS = 253
MAX_PORT = 65535
MYSQL_PORT = 3306
MAX_DATABASE_CHARS = 64  # the limit of MariaDB and MySQL


def checked(value: str) -> str:
    """Return the address unchanged. Raises ValueError with the reason and the remedy."""
    if value.startswith(SQLITE):
        path = value.removeprefix(SQLITE)
        if path == ":memory:":
            raise ValueError("a file is needed: several processes share the store")
        if path:
            return value
    if value.startswith(MYSQL):
        _check_mysql(value.removeprefix(MYSQL))
        return value
    raise ValueError(FORM)


def place(url: str) -> str:
    """Return the place of the store at a checked address, for people: its file, or hosts, ports and
    database, without user and password. A single host has the form of store/db/database.py."""
    if url.startswith(SQLITE):
        return url.removeprefix(SQLITE)
    _, _, rest = url.removeprefix(MYSQL).rpartition("@")
    addresses, _, rest = rest.partition("/")
    hosts = ",".join(map(_with_port, addresses.split(",")))
    return f"{hosts}/{urllib.parse.unquote(rest.partition('?')[0])}"


def _with_port(address: str) -> str:
    has_port = ":" in address.rpartition("]")[2]
    return address if has_port else f"{address}:{MYSQL_PORT}"


def is_host(text: str) -> bool:
    """Return whether a text is an IP address or a possible host name."""
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        labels = text.removesuffix(".").split(".")
        return len(text) <= MAX_HOST_CHARS and all(map(_LABEL.fullmatch, labels))


def _check_mysql(rest: str) -> None:
    login, _, place = rest.rpartition("@")
    user, _, password = login.partition(":")
    _check_text("user", user)
    # A colon in a password needs no escape, because the first one ends the user.
    _check_text("password", password.replace(":", ""))
    addresses, slash, database = place.partition("/")
    database, _, query = database.partition("?")
    if not addresses or not slash or not database:
        raise ValueError(FORM)
    hosts = addresses.split(",")
    for address in hosts:
        _check_address(address)
    if len({_with_port(host.lower()) for host in hosts}) < len(hosts):
        raise ValueError("a host is named twice")
    _check_options(query)
    _check_text("name of the database", database)
    if len(urllib.parse.unquote(database)) > MAX_DATABASE_CHARS:
        raise ValueError(f"the name of the database has more than {MAX_DATABASE_CHARS} characters")


def _check_options(query: str) -> None:
    """Check the part after the name of the database: options of encryption, or nothing."""
    options = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(options.keys() - {"ssl_ca", "ssl_verify_identity"}):
        raise ValueError(f'"{unknown[0]}" is no option: ssl_ca and ssl_verify_identity are')
    if query and not options.get("ssl_ca", "").startswith("/"):
        raise ValueError("ssl_ca expected, the whole path of a file of certificates (PEM)")
    if options.get("ssl_verify_identity", "true") not in ("true", "false"):
        raise ValueError("ssl_verify_identity is true or false")


def _check_text(what: str, text: str) -> None:
    left = _ESCAPE.sub("", text)
    for char in left:
        if not _PLAIN.fullmatch(char):
            quoted = '"%", which begins no escape' if char == "%" else f'"{char}"'
            coded = urllib.parse.quote(char, safe="")
            raise ValueError(f"the {what} holds {quoted}: write it as {coded}")
    decoded = urllib.parse.unquote_to_bytes(text)
    if b"\0" in decoded or (what != "password" and not _is_utf8(decoded)):
        raise ValueError(f"the {what} is not text in UTF-8 when its escapes are read")


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_address(address: str) -> None:
    in_brackets = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", address)
    if in_brackets:
        host, port = in_brackets[1], in_brackets[2]
        good = ":" in host and is_host(host)
    else:
        host, colon, after = address.partition(":")
        port = after if colon else None
        good = is_host(host)
    if not good:
        raise ValueError(
            "before the last / a host like db.example:3306 expected, an IPv6 address in brackets"
        )
    if port is not None and not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) <= MAX_PORT):
        raise ValueError(f"{FORM}; the port is a number from 1 to {MAX_PORT}")

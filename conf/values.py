"""The value of one setting: parsed from text and checked against its row of the table.

Pure functions. Messages name the expected form, and quote a value only if it cannot be a secret.
"""

import ipaddress
import re
import tomllib
import typing
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from conf import store_url

MAX_SHOWN_CHARS = 60
MAIL_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9.-]{1,189}", re.ASCII)


class Setting(msgspec.Struct, frozen=True):
    """One row of the table: `name` is section.key, `annotated` a type that msgspec can check."""

    name: str
    annotated: Any
    default: object
    description: str
    unit: str | None
    kind: type[object]
    choices: tuple[str, ...]
    low: int | None
    high: int | None
    secret: bool

    @property
    def section(self) -> str:
        return self.name.partition(".")[0]

    @property
    def key(self) -> str:
        return self.name.partition(".")[2]

    @property
    def expected(self) -> str:
        """Describe the values that are allowed."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        if self.kind is tuple:
            return 'a list of strings like ["A", "B"]'
        if self.kind is str:
            return "a string"
        return f"an integer from {self.low} to {self.high}"


def describe(name: str, annotated: object, default: object) -> Setting:
    """Return the row for one field of a section: Annotated[type, msgspec.Meta(…)]."""
    base, meta = typing.get_args(annotated)
    choices = typing.get_args(base) if typing.get_origin(base) is typing.Literal else ()
    return Setting(
        name=name,
        annotated=annotated,
        default=default,
        description=meta.description,
        unit=(meta.extra or {}).get("unit"),
        kind=type(default),
        choices=choices,
        low=meta.ge,
        high=meta.le,
        secret=(meta.extra or {}).get("secret", False),
    )


def from_text(setting: Setting, text: str) -> object:
    """Return a text of --set or the environment, parsed like TOML without quotes and not checked
    yet."""
    if setting.kind is str:
        return text
    try:
        return tomllib.loads("value = " + text)["value"]
    except (ValueError, KeyError, RecursionError):  # an integer of 5000 digits, 5000 brackets
        return text


def checked(setting: Setting, raw: object) -> object:
    """Return the value in its own type. Raises ValueError with the reason."""
    try:
        value: Any = msgspec.convert(raw, setting.annotated)
    except msgspec.ValidationError:
        raise ValueError(f"{setting.expected} expected{_given(setting, raw)}") from None
    if isinstance(value, str) and not value.isprintable():
        raise ValueError("a string of printable characters in UTF-8 expected")
    check = _CHECKS.get(setting.name)
    return check(value) if check else value


def _given(setting: Setting, raw: object) -> str:
    if setting.secret or setting.name in ("store.url", "mail.url"):
        return ""  # it may contain a password
    if isinstance(raw, (str, int, float)):
        return f", {repr(raw)[:MAX_SHOWN_CHARS]} given"
    return f", a {type(raw).__name__} given"


def toml(value: object) -> str:
    """Return a value of a setting as TOML text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML's basic strings have the same escapes as JSON
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return str(value)


def _networks(value: Any) -> tuple[str, ...]:
    for network in value:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise ValueError(f"networks like 10.0.0.0/8 expected: {error}") from None
    return tuple(value)


def _origins(value: Any) -> tuple[str, ...]:
    for origin in value:
        url = _split(origin)
        is_origin = (
            url is not None and bool(url.hostname) and origin == f"{url.scheme}://{url.netloc}"
        )
        if origin != "*" and not (is_origin and origin == origin.lower() and "@" not in origin):
            raise ValueError("* or origins like https://app.example expected, without a path")
    return tuple(value)


def _public_url(value: Any) -> str:
    url = _endpoint(value, "https://gateway.example")
    if url.endswith(("/v1", "/v1/messages")):
        raise ValueError("the address without /v1 expected: clients append their own path")
    return url


def _endpoint(value: Any, example: str = "http://127.0.0.1:4318") -> str:
    if not value:
        return ""
    url = _split(value)
    if url is None or url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"an address like {example} expected")
    if url.username is not None or url.query or url.fragment:
        raise ValueError("an address without user, query and fragment expected")
    return str(value).rstrip("/")


def _issuer(value: Any) -> str:
    if not value:
        return ""
    url = _split(value)
    if url is None or not url.hostname or url.username is not None or url.query or url.fragment:
        raise ValueError("an address like https://login.example.com expected")
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(url.hostname)):
        raise ValueError("an address with https:// expected")
    return str(value)


def _mail_url(value: Any) -> str:
    if not value:
        return ""
    url = _split(value)
    if url is None or url.scheme not in ("smtp", "smtps") or not url.hostname:
        raise ValueError("an address like smtp://user:password@mail.example.com:587 expected")
    if url.path.strip("/") or url.query or url.fragment or bool(url.username) != bool(url.password):
        raise ValueError("scheme, user and password (or neither), host and port expected, no path")
    return str(value)


def _mail_address(value: Any) -> str:
    if value and not MAIL_ADDRESS.fullmatch(value):
        raise ValueError("an address like sluice@example.com expected")
    return str(value)


def _host(value: Any) -> str:
    if not store_url.is_host(value):
        raise ValueError("an address like 127.0.0.1 or ::1, or the name of a host expected")
    return str(value)


def _hosts(value: Any) -> tuple[str, ...]:
    if not all(map(store_url.is_host, value)):
        raise ValueError("names or addresses without port expected, like gateway.internal")
    return tuple(name.lower().removesuffix(".") for name in value)


def _token(value: Any) -> str:
    if not all("!" <= char <= "~" for char in value):
        raise ValueError("visible ASCII characters without blanks expected")
    return str(value)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().removesuffix(".") == "localhost"


def _split(value: str) -> urllib.parse.SplitResult | None:
    try:
        url = urllib.parse.urlsplit(value)
        _ = url.port  # raises ValueError if the port is not a number
    except ValueError:
        return None
    return url


def _currency(value: Any) -> str:
    if len(value) == 3 and value.isascii() and value.isalpha() and value.isupper():
        return str(value)
    raise ValueError("three capital letters expected, like USD")


_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "server.host": _host,
    "hub.host": _host,
    "hub.public_url": _public_url,
    "hub.oidc_issuer": _issuer,
    "hub.oidc_client_secret": _token,
    "mail.url": _mail_url,
    "mail.from": _mail_address,
    "ops.host": _host,
    "ops.token": _token,
    "ops.hosts": _hosts,
    "server.trusted_proxies": _networks,
    "hub.relay_networks": _networks,
    "server.public_url": _public_url,
    "server.cors_origins": _origins,
    "store.url": store_url.checked,
    "telemetry.otlp_endpoint": _endpoint,
    "money.currency": _currency,
}


def absolute(name: str, value: object, folder: Path) -> object:
    """Return the value with its path, if it has one, made absolute from `folder`."""
    if name == "journal.dir" or (name == "log.file" and value):
        return str(folder / str(value))
    if name == "store.url" and str(value).startswith("sqlite:///"):
        path = folder / str(value).removeprefix("sqlite:///")
        return f"sqlite:///{path}"
    return value

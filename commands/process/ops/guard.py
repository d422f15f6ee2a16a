"""Who may ask the ops port: the head of a request against Host and token.

Standard library and conf only. A page in a browser can lead a name of its own to this machine (DNS
rebinding): its requests come from inside then and carry that name as Host, so only names that are
ours are answered. Load balancers ask for liveness and readiness by whatever address they know, and
these two tell nothing that is worth a secret.
"""

import hmac
import ipaddress
from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

from conf.values import is_loopback

OPEN_PATHS = frozenset({"/livez", "/readyz"})

Refusal = tuple[HTTPStatus, dict[str, object]]


class Guard(NamedTuple):
    """`names`: hosts beside loopback and the address that the request came to; `token`: empty, or
    what all but OPEN_PATHS have to bring as a Bearer."""

    names: frozenset[str]
    token: str = ""

    def refusal(self, path: str, fields: Sequence[str], came_to: str) -> Refusal | None:
        """Why a request is not answered; None: it is. `fields`: header lines without line ends."""
        if path in OPEN_PATHS:
            return None
        hosts = _values(fields, "host")
        if len(hosts) != 1 or not self._is_ours(_name_of(hosts[0]), came_to):
            cure = "this name is not served here; add it to ops.hosts, or ask by address"
            return HTTPStatus.FORBIDDEN, {"error": cure}
        if self.token and not self._is_token(_values(fields, "authorization")):
            return HTTPStatus.UNAUTHORIZED, {"error": "Authorization: Bearer TOKEN (ops.token)"}
        return None

    def _is_ours(self, name: str, came_to: str) -> bool:
        return is_loopback(name) or name in self.names or _address(name) == _address(came_to) != ""

    def _is_token(self, given: Sequence[str]) -> bool:
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        same = hmac.compare_digest(token.strip().encode("latin-1"), self.token.encode())
        return scheme.lower() == "bearer" and same


def _values(fields: Sequence[str], name: str) -> list[str]:
    """The values of a header in all its lines."""
    parts = (field.partition(":") for field in fields)
    return [value.strip() for key, _, value in parts if key.lower() == name]


def _name_of(host: str) -> str:
    """What stands before the port, in lower case, without brackets and the dot at the end."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def _address(text: str) -> str:
    """One spelling of an IP address, an IPv4 one inside IPv6 as itself; empty: it is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    return str(getattr(address, "ipv4_mapped", None) or address)

"""Limits on wrong passwords and codes, by name and by network, and the log of failed sign-ins. Both
are in the process's memory.

Log lines never contain names, because people sometimes type their password into the name field.
"""

import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Literal

log = logging.getLogger("sluice.hub")

NAME_TRIES = 10
NETWORK_TRIES = 40
WINDOW_S = 600.0
MAX_NAME_CHARS = 160  # no user has a longer name
MAX_REMEMBERED = 10_000  # names and networks; the least recently tried is dropped

IPV6_PREFIX = 64
IPV4_PREFIX = 24
IPV4_BITS = 32

LOG_WINDOW_S = 60
NETWORK_LINES_MAX = 10  # per window; the rest are counted at its end
LINES_MAX = 100  # of all networks
COUNT_LINES_MAX = 10  # at the end of a window, for the networks with the highest counts

Key = tuple[str, str]
Outcome = Literal["ok", "wrong", "wrong_code", "locked", "busy", "not_linked", "provider"]


class TooManyTries(Exception):
    """Too many wrong tries. `wait_s`: seconds until the next try is allowed."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"too many tries; again in {wait_s} s")
        self.wait_s = wait_s


class Throttle:
    """Failed tries within WINDOW_S, by name and by network. `forgives`: a successful try clears the
    failed ones of its name."""

    def __init__(self, *, forgives: bool = True) -> None:
        self._forgives = forgives
        self._tries: OrderedDict[Key, list[float]] = OrderedDict()

    def wait_s(self, name: str, address: str, now_s: float) -> int:
        """Return the seconds until the next try is allowed. 0: now."""
        limits = zip(_keys(name, address), (NAME_TRIES, NETWORK_TRIES), strict=True)
        return math.ceil(max(self._wait_s(key, limit, now_s) for key, limit in limits))

    def failed(self, name: str, address: str, now_s: float) -> list[str]:
        """Count a failed try. Return which of "name" and "network" are locked by it."""
        locked = []
        keys = _keys(name, address)
        for key, limit in zip(keys, (NAME_TRIES, NETWORK_TRIES), strict=True):
            tries = self._tries.setdefault(key, [])
            tries.append(now_s)
            self._tries.move_to_end(key)
            if len(tries) == limit:
                locked.append(key[0])
        while len(self._tries) > MAX_REMEMBERED:
            self._tries.popitem(last=False)
        return locked

    def take_back(self, name: str, address: str, at_s: float) -> None:
        """Uncount the try at `at_s`."""
        for key in _keys(name, address):
            tries = self._tries.get(key, [])
            if at_s in tries:
                tries.remove(at_s)

    def succeeded(self, name: str, address: str, at_s: float) -> None:
        """Count the try at `at_s` as successful. Other tries from the network remain, since they
        may be somebody else's."""
        self.take_back(name, address, at_s)
        if self._forgives:
            self._tries.pop(_keys(name, address)[0], None)

    def _wait_s(self, key: Key, limit: int, now_s: float) -> float:
        tries = self._tries.get(key)
        if tries is None:
            return 0.0
        tries[:] = [at_s for at_s in tries if now_s - at_s < WINDOW_S]
        if not tries:
            del self._tries[key]
        return WINDOW_S - (now_s - tries[-limit]) if len(tries) >= limit else 0.0


def _keys(name: str, address: str) -> tuple[Key, Key]:
    return ("name", name[:MAX_NAME_CHARS]), ("network", network_of(address))


# ---- addresses as they are counted ---------------------------------------------------------------


def host_of(address: str) -> str:
    """Return the host of an address for counting: the address itself with IPv4, its /64 with
    IPv6."""
    return _cut(address, IPV4_BITS)


def network_of(address: str) -> str:
    """Return the network that one person may control: the /24 with IPv4, the /64 with IPv6."""
    return _cut(address, IPV4_PREFIX)


def _cut(address: str, ipv4_prefix: int) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:
        return address  # the socket has no IP address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is None:
            return str(ip_network((parsed, IPV6_PREFIX), strict=False))
        parsed = parsed.ipv4_mapped
    network = ip_network((parsed, ipv4_prefix), strict=False)
    return str(parsed if ipv4_prefix == IPV4_BITS else network)


# ---- sign-ins ------------------------------------------------------------------------------------


class SignInLog:
    """Counts sign-ins by outcome, and logs failed ones in a bounded number of lines. `count`
    receives each outcome, for the metrics."""

    def __init__(self, count: Callable[[str], None] = lambda outcome: None) -> None:
        self._count = count
        self._ends_s = 0.0
        self._lines = 0
        self._network_lines: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def ended(self, outcome: Outcome, network: str, now_s: float, reason: str = "") -> None:
        """Count a sign-in, and log it if it failed. `reason`: added to the log line."""
        self._count(outcome)
        if outcome == "ok":
            return
        self.sweep(now_s)
        if not self._ends_s:
            self._ends_s = now_s + LOG_WINDOW_S
        if self._lines < LINES_MAX and self._network_lines[network] < NETWORK_LINES_MAX:
            self._lines += 1
            self._network_lines[network] += 1
            text = f"{outcome}: {reason}" if reason else outcome
            log.warning("a sign-in from %s failed: %s", network, text)
        elif network in self._network_lines or len(self._left_out) < LINES_MAX:
            self._left_out[network] += 1
        else:
            self._left_out["other networks"] += 1

    def sweep(self, now_s: float) -> None:
        """At the end of a window, log the counts of failures without a line of their own."""
        if not self._ends_s or now_s < self._ends_s:
            return
        for network, count in self._left_out.most_common(COUNT_LINES_MAX):
            log.warning("%d more sign-ins from %s failed within %d s", count, network, LOG_WINDOW_S)
        remaining = sum(count for _, count in self._left_out.most_common()[COUNT_LINES_MAX:])
        if remaining:
            text = "%d more sign-ins from other networks failed within %d s"
            log.warning(text, remaining, LOG_WINDOW_S)
        self._ends_s, self._lines = 0.0, 0
        self._network_lines.clear()
        self._left_out.clear()

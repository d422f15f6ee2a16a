"""Limits on tries of a password or a code: by name and by network, in the memory of the
process."""

import math
from collections import OrderedDict

from handlers.hub.web.networks import network_of

NAME_TRIES = 10
NETWORK_TRIES = 40
WINDOW_S = 600.0
MAX_NAME_CHARS = 160  # longer ones belong to nobody
MAX_REMEMBERED = 10_000  # names and networks; the one that was tried longest ago is forgotten

Key = tuple[str, str]


class Throttle:
    """Tries that failed within WINDOW_S. `name`: whose secret is tried; `forgives`: a right one
    makes its wrong ones forgotten."""

    def __init__(self, *, forgives: bool = True) -> None:
        self._forgives = forgives
        self._tries: OrderedDict[Key, list[float]] = OrderedDict()

    def wait_s(self, name: str, address: str, now_s: float) -> int:
        """Seconds until another try is allowed; 0: now."""
        limits = zip(_keys(name, address), (NAME_TRIES, NETWORK_TRIES), strict=True)
        return math.ceil(max(self._wait_s(key, most, now_s) for key, most in limits))

    def failed(self, name: str, address: str, now_s: float) -> list[str]:
        """Counts a try with a wrong password or code; which of name and network are locked by
        it."""
        locked = []
        keys = _keys(name, address)
        for key, most in zip(keys, (NAME_TRIES, NETWORK_TRIES), strict=True):
            tries = self._tries.setdefault(key, [])
            tries.append(now_s)
            self._tries.move_to_end(key)
            if len(tries) == most:
                locked.append(key[0])
        while len(self._tries) > MAX_REMEMBERED:
            self._tries.popitem(last=False)
        return locked

    def take_back(self, name: str, address: str, at_s: float) -> None:
        """The try at `at_s` was none."""
        for key in _keys(name, address):
            tries = self._tries.get(key, [])
            if at_s in tries:
                tries.remove(at_s)

    def succeeded(self, name: str, address: str, at_s: float) -> None:
        """The try at `at_s` was right. Those of the network may be somebody else's, and stay."""
        self.take_back(name, address, at_s)
        if self._forgives:
            self._tries.pop(_keys(name, address)[0], None)

    def _wait_s(self, key: Key, most: int, now_s: float) -> float:
        tries = self._tries.get(key)
        if tries is None:
            return 0.0
        tries[:] = [at_s for at_s in tries if now_s - at_s < WINDOW_S]
        if not tries:
            del self._tries[key]
        return WINDOW_S - (now_s - tries[-most]) if len(tries) >= most else 0.0


def _keys(name: str, address: str) -> tuple[Key, Key]:
    return ("name", name[:MAX_NAME_CHARS]), ("network", network_of(address))

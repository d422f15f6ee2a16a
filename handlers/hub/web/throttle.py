"""How often somebody may try a password, or a code: by name and by address, in the memory of the
process."""

import math
from collections import OrderedDict

NAME_TRIES = 10
ADDRESS_TRIES = 40
WINDOW_S = 600.0
MAX_NAME_CHARS = 160  # longer ones belong to nobody
MAX_REMEMBERED = 10_000  # names and addresses; the one that was tried longest ago is forgotten


class Throttle:
    """Tries that failed within WINDOW_S."""

    def __init__(self) -> None:
        self._tries: OrderedDict[tuple[str, str], list[float]] = OrderedDict()

    def wait_s(self, name: str, address: str, now_s: float) -> int:
        """Seconds until another try is allowed; 0: now."""
        waits = (
            self._wait_s(("name", name[:MAX_NAME_CHARS]), NAME_TRIES, now_s),
            self._wait_s(("address", address), ADDRESS_TRIES, now_s),
        )
        return math.ceil(max(waits))

    def failed(self, name: str, address: str, now_s: float) -> None:
        """Counts a try with a wrong password or code."""
        for key in (("name", name[:MAX_NAME_CHARS]), ("address", address)):
            self._tries.setdefault(key, []).append(now_s)
            self._tries.move_to_end(key)
        while len(self._tries) > MAX_REMEMBERED:
            self._tries.popitem(last=False)

    def succeeded(self, name: str, address: str = "", at_s: float = 0.0) -> None:
        """Forgets the tries of a name; those of its address may be somebody else's, but for the one
        at `at_s`, which was counted before its outcome was known."""
        self._tries.pop(("name", name[:MAX_NAME_CHARS]), None)
        of_address = self._tries.get(("address", address), [])
        if at_s in of_address:
            of_address.remove(at_s)

    def _wait_s(self, key: tuple[str, str], most: int, now_s: float) -> float:
        tries = self._tries.get(key)
        if tries is None:
            return 0.0
        tries[:] = [at_s for at_s in tries if now_s - at_s < WINDOW_S]
        if not tries:
            del self._tries[key]
        return WINDOW_S - (now_s - tries[-most]) if len(tries) >= most else 0.0

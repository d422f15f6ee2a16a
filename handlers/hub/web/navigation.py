"""The entries of the navigation: those for everybody, and those for administrators."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the navigation: path, icon and the name of its text in `nav`. `also`: other paths
    below which the entry counts as the current one."""

    path: str
    icon: str
    word: str
    also: tuple[str, ...] = ()

    def is_present(self, path: str) -> bool:
        """Return whether the page at `path` belongs to this entry."""
        return any(
            path == own or (own != "/" and path.startswith(f"{own}/"))
            for own in (self.path, *self.also)
        )


EVERYBODY = (
    Entry("/", "home", "home"),
    Entry("/keys", "key", "keys"),
    Entry("/models", "box", "models", also=("/status",)),
    Entry("/try", "try", "try"),
    Entry("/usage", "usage", "usage", also=("/admin/usage",)),
    Entry("/wallet", "wallet", "wallet"),
    Entry("/alerts", "bell", "alerts"),
    Entry("/setup", "plug", "setup"),
)
ADMINISTRATION = (
    Entry("/admin/users", "users", "users"),
    Entry("/admin/keys", "key", "all_keys"),
    Entry("/admin/groups", "layers", "groups"),
    Entry("/admin/channels", "channels", "channels"),
    Entry("/admin/models", "tag", "prices", also=("/admin/prices",)),
    Entry("/admin/plans", "calendar", "plans"),
    Entry("/admin/codes", "ticket", "codes"),
    Entry("/admin/audit", "log", "audit"),
    Entry("/admin/system", "gauge", "system"),
)
FOOT_OF_PHONE = ("home", "keys", "models", "usage")
"""The entries in the bar at the bottom of a phone's screen, by `word`. The others are under
More."""


@dataclass(frozen=True, slots=True)
class Navigation:
    """The navigation's entries for a user."""

    everybody: Sequence[Entry]
    administration: Sequence[Entry]

    @property
    def foot(self) -> Sequence[Entry]:
        """Return the entries in the bottom bar of a phone."""
        return [entry for entry in self.everybody if entry.word in FOOT_OF_PHONE]

    @property
    def more(self) -> Sequence[Entry]:
        """Return the entries under More on a phone."""
        rest = [entry for entry in self.everybody if entry.word not in FOOT_OF_PHONE]
        return [*rest, *self.administration]


def navigation(*, admin: bool) -> Navigation:
    """Return the navigation for a user. `admin`: include the administrators' entries."""
    return Navigation(EVERYBODY, ADMINISTRATION if admin else ())

"""The entries of the navigation: one list for everybody, and the pages of administration."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A page of the navigation: its path, its icon, the name of its word in `nav`; `also`: paths
    below which the entry is the present one, too."""

    path: str
    icon: str
    word: str
    also: tuple[str, ...] = ()

    def is_present(self, path: str) -> bool:
        """Tell whether a page belongs to this entry."""
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
"""The words of the entries that stand at the foot of a phone; the rest is under More."""


@dataclass(frozen=True, slots=True)
class Navigation:
    """The entries of somebody's pages."""

    everybody: Sequence[Entry]
    administration: Sequence[Entry]

    @property
    def foot(self) -> Sequence[Entry]:
        """Return the entries at the foot of a phone."""
        return [entry for entry in self.everybody if entry.word in FOOT_OF_PHONE]

    @property
    def more(self) -> Sequence[Entry]:
        """Return the entries under More on a phone."""
        rest = [entry for entry in self.everybody if entry.word not in FOOT_OF_PHONE]
        return [*rest, *self.administration]


def navigation(*, admin: bool) -> Navigation:
    """Return the entries of somebody's pages; `admin`: with the administration."""
    return Navigation(EVERYBODY, ADMINISTRATION if admin else ())

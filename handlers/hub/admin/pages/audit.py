"""The audit log: time, who, from where, what, and before and after with what differs marked."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from handlers.hub.admin.api import audit
from handlers.hub.admin.pages.base import AdminPage, place_of
from store.values.fields import Instant

FILTERS = ("actor", "kind", "name", "since")
MAX_SHOWN_CHARS = 300
_NOTHING: tuple[object, ...] = (None, 0, [], {})


class Part(NamedTuple):
    """A field of a change: its value before and after as text, None where there was none."""

    name: str
    before: str | None
    after: str | None


def parts(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Iterator[Part]:
    """The fields that a change tells of, in their order; of what was made, those that say
    something."""
    was, then = before or {}, after or {}
    if before is None:
        then = {name: value for name, value in then.items() if value not in _NOTHING}
    for name in dict.fromkeys((*was, *then)):
        yield Part(
            name,
            _text(was[name]) if name in was else None,
            _text(then[name]) if name in then else None,
        )


def _text(value: Any) -> str:
    if isinstance(value, dict):
        text = ", ".join(f"{name} = {_text(one)}" for name, one in value.items()) or "{}"
    elif isinstance(value, list):
        text = ", ".join(map(_text, value)) or "[]"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = "–" if value is None else str(value)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


class Log(AdminPage):
    """The page."""

    async def get(self) -> None:
        asked = audit.asked_of(self)
        found = await self.store(audit.page, asked)
        set_ones = {name: self.get_query_argument(name, "") for name in FILTERS}
        self.show(
            "admin/audit.html",
            items=found.items,
            next=found.next,
            filters={name: value for name, value in set_ones.items() if value},
            names=FILTERS,
            parts=parts,
            ms=Instant().parse,
            here=place_of("audit"),
        )

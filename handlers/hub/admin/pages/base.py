"""What the pages of administrators share."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from handlers.hub.web.base import Failure, Page


class AdminPage(Page):
    """A page for administrators."""

    admin = True

    def typed(self) -> Mapping[str, Sequence[str]]:
        """What a form has sent, by name."""
        sent = self.request.body_arguments
        return {name: [one.decode("utf-8", "replace") for one in sent[name]] for name in sent}

    def problems_of(self, failure: Failure, fields: Sequence[str]) -> dict[str, str]:
        """Where a refusal is shown: beside its field, or above the form ("")."""
        found: dict[str, str] = {}
        for field, told in (failure.problems or {failure.field or "": failure.message}).items():
            # Beside its field a fault need not name it.
            short = told.partition(f": {field}: ")[2] or told
            if field in fields:
                found[field] = short
            else:
                found[""] = f"{found['']}; {told}" if "" in found else told
        return found


def place_of(plural: str, name: str = "", action: str = "") -> str:
    """The address of a list, of one of its objects, or of what is done with it."""
    parts = [plural, *([quote(name, safe="")] if name else []), *([action] if action else [])]
    return "/admin/" + "/".join(parts)

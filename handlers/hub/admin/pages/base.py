"""What the pages of administrators share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from handlers.hub.web.base import Failure, Page
from store.admin.listing import Paging, Part
from store.values.fields import Instant


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked before something that cannot be undone: its effect, the name that has to be
    typed, where the form goes and what its button says, where it leads back to."""

    title: str
    effect: str
    name: str
    action: str
    button: str
    back: str


class AdminPage(Page):
    """A page for administrators."""

    admin = True

    def show_list(self, plural: str, found: Part, paging: Paging, **more: Any) -> None:
        """Answers with a page of a list."""
        values = {
            "plural": plural,
            "items": found.items,
            "next": found.next,
            "search": paging.search,
            "paging": paging,
            "narrowed": False,
            "ms": Instant().parse,
            "place": place_of,
        }
        self.show(f"admin/{plural}.html", **{**values, **more})

    def ask(
        self, question: Question, problem: str = "", status: int = HTTPStatus.BAD_REQUEST
    ) -> None:
        """Answers with a question, after a wrong answer with its problem."""
        if problem:
            self.set_status(status)
        self.show("admin/remove.html", question=question, problem=problem)

    def confirmed(self, name: str) -> str:
        """What is wrong with the name that was typed to confirm; nothing when it is right."""
        if self.get_body_argument("confirm", "") == name:
            return ""
        return self.words["confirm_differs"].format(name=name)

    def typed(self) -> Mapping[str, Sequence[str]]:
        """What a form has sent, by name."""
        sent = self.request.body_arguments
        return {name: [one.decode("utf-8", "replace") for one in sent[name]] for name in sent}

    def problems_of(self, failure: Failure, fields: Sequence[str]) -> dict[str, str]:
        """Where a refusal is shown: beside its field, or above the form ("")."""
        found: dict[str, str] = {}
        for field, told in (failure.problems or {failure.field or "": failure.message}).items():
            # Beside its field a fault need not name it.
            short = self.in_words(told.partition(f": {field}: ")[2] or told)
            if field in fields:
                found[field] = short
            else:
                found[""] = f"{found['']}; {told}" if "" in found else told
        return found


def place_of(plural: str, name: str = "", action: str = "") -> str:
    """The address of a list, of one of its objects, or of what is done with it."""
    parts = [plural, *([quote(name, safe="")] if name else []), *([action] if action else [])]
    return "/admin/" + "/".join(parts)

"""Bases of the pages and endpoints for administrators."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.web.base import Api, Failure, HubHandler, Page, invalid
from handlers.hub.web.refusals import beside
from operations import edits
from store.admin.apply import Editor, Outcome
from store.admin.listing import ListPage, Paging
from store.values.fields import Instant
from store.values.texts import segment

DEFAULT_ITEMS = 50
MAX_ITEMS = 500  # on one page of a list


def path_of(plural: str, name: str = "", action: str = "") -> str:
    """Return the path of a list, of one of its objects, or of an action on it."""
    parts = [plural, *([segment(name)] if name else []), *([action] if action else [])]
    return "/admin/" + "/".join(parts)


class AdminHandler(HubHandler):
    """A handler for administrators."""

    admin = True

    def limit(self) -> int:
        """Return the requested number of items. Raises Failure."""
        return self.number("limit", DEFAULT_ITEMS, MAX_ITEMS)

    def paging(self) -> Paging:
        """Return the requested part of a list. Raises Failure."""
        argument = self.get_query_argument
        return Paging(self.limit(), argument("after", ""), argument("search", "").strip())

    async def edit(self, change: Callable[[Editor], Outcome], *, hashes: bool = False) -> Outcome:
        """Make a change as the signed-in user. `hashes`: True if it may hash a password. Raises
        Failure."""
        actor, sealing = self.me.user, self.site.sealing

        def work(db: peewee.Database) -> Outcome:
            return change(edits.editor(db, sealing, actor, remote=True))

        return await (self.hashing(work) if hashes else self.store(work))


class AdminApi(AdminHandler, Api):
    """An endpoint for administrators, and for their tokens with the scope `admin`."""

    scope = change_scope = "admin"

    def body(self) -> dict[str, Any]:
        """Return the request's JSON object. Decimal fractions become Decimal, since they may be
        money. Raises Failure."""
        super().body()
        return json.loads(self.request.body, parse_float=Decimal) if self.request.body else {}

    def fields(self, *names: str) -> dict[str, Any]:
        """Return the request's JSON object, which may have only these fields. Raises Failure."""
        body = self.body()
        for name in body:
            if name not in names:
                message = f'unknown field "{name}"; there are: {", ".join(names) or "none"}'
                raise invalid(name, message)
        return body

    def flag(self, body: Mapping[str, Any], name: str) -> bool:
        """Return a boolean field of a body, or False if it is absent. Raises Failure."""
        value = body.get(name, False)
        if not isinstance(value, bool):
            raise invalid(name, f"{name} must be true or false")
        return value


@dataclass(slots=True)
class Confirmation:
    """The question before an irreversible action. `name`: what the user must type; `action`: the
    form's target; `button`: the button's text; `back`: where the page leads back to; `problem`: a
    known obstacle; `takes_reason`: show a field for a reason."""

    title: str
    effect: str
    name: str
    action: str
    button: str
    back: str
    problem: str = ""
    takes_reason: bool = False


class AdminPage(AdminHandler, Page):
    """A page for administrators."""

    def show(self, template: str, **values: Any) -> None:
        super().show(template, **{"place": path_of, **values})

    def show_list(self, plural: str, part: ListPage, paging: Paging, **values: Any) -> None:
        """Render a page of a list."""
        defaults = {
            "plural": plural,
            "items": part.items,
            "next": part.next,
            "search": paging.search,
            "paging": paging,
            "narrowed": False,
            "ms": Instant().parse,
        }
        self.show(f"admin/{plural}.html", **{**defaults, **values})

    def done(self, word: str, path: str, undo: str = "", **values: object) -> None:
        """Redirect to `path` with a toast. If the form was sent from that page, keep its filters.
        `undo`: the path that reverts the change."""
        self.say(self.words[f"admin.{word}"].format(**values), undo)
        self.redirect(self.page_before(path), status=HTTPStatus.SEE_OTHER)

    def done_switched(self, label: str, switch_path: str, path: str, *, enabled: bool) -> None:
        """Redirect to `path` with a toast that says what was enabled or disabled. The actions to
        enable and disable it are below `switch_path`."""
        undo = f"{switch_path}/{'disable' if enabled else 'enable'}"
        self.done("done_enabled" if enabled else "done_disabled", path, undo, name=label)

    def submitted(self) -> Mapping[str, Sequence[str]]:
        """Return the values of each field of the submitted form."""
        arguments = self.request.body_arguments
        return {
            name: [value.decode("utf-8", "replace") for value in values]
            for name, values in arguments.items()
        }

    def form_values(self, fields: Sequence[str], failure: Failure | None) -> dict[str, Any]:
        """Return the submitted values and their problems for the form's template. Sets the status
        of the failure, if any."""
        if failure is not None:
            self.set_status(failure.status_code)
        return {
            "inputs": {name: self.get_body_argument(name, "") for name in fields},
            "problems": self.problems_of(failure, fields) if failure else {},
        }

    def problems_of(self, failure: Failure, fields: Sequence[str]) -> dict[str, str]:
        """Return the problems of a failure by field; those of other fields under "", above the
        form."""
        problems: dict[str, str] = {}
        for field, text in (failure.problems or {failure.field or "": failure.message}).items():
            # A problem shown next to its field need not name the field.
            short = beside(field, text)
            # A problem of a price begins with its meter, next to which it is shown.
            part = _PART_OF_PRICES.match(short) if field in ("price", "rate") else None
            meter = part[0] if part else ""
            short = meter + self.in_words(short.removeprefix(meter))
            if field in fields:
                problems[field] = short
            else:
                whole = self.in_words(text)
                problems[""] = f"{problems['']}; {whole}" if "" in problems else whole
        return problems


_PART_OF_PRICES = re.compile(r"(?:rate \d+: )?(?:\w+: )?")


class ActionPage(AdminPage):
    """The target of a form. A GET redirects to the page with the form: the list `plural` or, if
    `of_object`, the page of the object."""

    plural = ""
    of_object = False

    def back(self, *names: str) -> str:
        """Return the path of the page with the form."""
        return path_of(self.plural, names[0] if self.of_object else "")

    async def get(self, *names: str) -> None:
        self.redirect(self.back(*names), status=HTTPStatus.SEE_OTHER)


class ConfirmationPage(AdminPage):
    """A question before an irreversible action, which the user confirms by typing a name."""

    confirmation: Confirmation

    async def prepare_question(self, *args: Any, **kwargs: Any) -> None:
        """Set the question with `ask`. Raises Failure."""
        raise NotImplementedError

    async def confirmed(self, *args: Any, **kwargs: Any) -> None:
        """Perform the action and redirect. Raises Failure."""
        raise NotImplementedError

    def ask(
        self, texts: tuple[str, str, str], typed: str, action: str, back: str, **values: str
    ) -> None:
        """Set the question. `texts`: names of the texts of the title, the effect and the button;
        `values` fill the title and the button. `typed`: the name to type."""
        title, effect, button = (self.words[text] for text in texts)
        title = title.format(**{"name": typed, **values})
        button = button.format(**values)
        self.confirmation = Confirmation(title, effect, typed, action, button, back)

    async def get(self, *names: str) -> None:
        await self.prepare_question(*names)
        self._show(self.confirmation.problem)

    async def post(self, *names: str) -> None:
        await self.prepare_question(*names)
        name = self.confirmation.name
        try:
            if self.get_body_argument("confirm", "") != name:
                raise invalid(None, self.words["confirm_differs"].format(name=name))
            await self.confirmed(*names)
        except Failure as failure:
            self.set_status(failure.status_code)
            self._show(self.in_words(failure.message))

    def _show(self, problem: str) -> None:
        self.show("admin/confirm.html", confirmation=self.confirmation, problem=problem)

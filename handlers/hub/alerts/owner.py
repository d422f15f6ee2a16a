"""The owner of the alerts that a request is about, and the texts of rules.

`?of=gateway` means the rules that administrators share, `?of=me` those of the user. The default is
`gateway` on administrators' pages, `me` elsewhere and in the API.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from handlers.hub.web.base import Api, Failure, HubHandler, Page
from handlers.hub.web.formats import address, money
from operations.alerts.sender import Sender, hub_url
from store.alerts import kinds
from store.alerts.destinations import MAIL, WEBHOOK, Destination
from store.alerts.rules import GATEWAY, OWNER, Rule

MINE, OF_GATEWAY = "me", "gateway"
SHAPES = {"off": "idle", "armed": "ok"}
RESULTS = {"mail is not set up": "why_no_mail", "no mail address": "why_no_address"}
MAX_NAMED = 3


class AlertHandler(HubHandler):
    """A request about the alerts of the gateway or of the user."""

    default_of = MINE

    @property
    def of(self) -> str:
        """Return whose alerts the request is about: gateway or me. Raises Failure."""
        return self._of(self.get_query_argument("of", "") or self.default_of)

    def _of(self, of: str) -> str:
        if of not in (MINE, OF_GATEWAY):
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "of must be me or gateway", "of")
        if of == OF_GATEWAY and not self.me.admin:
            text = "the gateway's alerts are for administrators"
            raise Failure(HTTPStatus.NOT_FOUND, "not_found", text)
        return of

    @property
    def owner_id(self) -> str:
        """Return the owner of the alerts. Raises Failure."""
        return GATEWAY if self.of == OF_GATEWAY else self.me.user_id

    @property
    def sender(self) -> Sender:
        """Return a sender, for tests of destinations."""
        settings = self.site.settings
        return Sender(settings.mail, hub_url(settings.hub), self.site.sealing.cipher)


class AlertApi(AlertHandler, Api):
    """An endpoint of the JSON API about alerts."""


class AlertPage(AlertHandler, Page):
    """A page about alerts. For administrators the default is those of the gateway."""

    @property
    def default_of(self) -> str:  # type: ignore[override]
        """Return whose alerts are shown if the query has no `of`."""
        return OF_GATEWAY if self.me.admin else MINE

    def path(self, path: str = "", **query: str) -> str:
        """Return a path below /alerts for the same owner."""
        return address(f"/alerts{path}", of=self.of, **query)

    def done(self, word: str, **values: object) -> None:
        """Redirect to the page of alerts with a toast."""
        self.say(self.words[f"alerts.{word}"].format(**values))
        self.redirect(self.path(), status=HTTPStatus.SEE_OTHER)

    def show_alerts(self, template: str, **values: Any) -> None:
        """Render a page that shows rules and destinations as text."""
        self.show(
            f"alerts/{template}.html",
            of=self.of,
            place=self.path,
            sentence=self.sentence,
            scope_of=self.scope_of,
            shape_of=shape_of,
            icon_of=icon_of,
            message_shape=message_shape,
            result_of=self.result_of,
            **values,
        )

    def result_of(self, text: str) -> str:
        """Return the result of an attempt as text. Messages of a receiver or the network are
        unchanged."""
        return self.words[f"alerts.{RESULTS[text]}"] if text in RESULTS else self.in_words(text)

    def sentence(self, rule: Rule) -> str:
        """Return a rule as text."""
        settings: Mapping[str, Any] = rule.settings
        variant = {
            kinds.CHANNEL_DOWN: settings.get("state", ""),
            kinds.SPENDING: f"{settings.get('of', '')}_{settings.get('window', '')}",
        }.get(rule.kind, "")
        name = f"alerts.when_{rule.kind}" + (f"_{variant}" if variant else "")
        values = {**settings, "currency": self.site.settings.money.currency}
        values |= {name: _amount(values[name]) for name in ("below", "above") if name in values}
        return self.words[name].format(**values)

    def scope_of(self, rule: Rule) -> str:
        """Return the objects that a rule covers, as text."""
        names = rule.settings.get("names") or ()
        if names:
            more = f" + {len(names) - MAX_NAMED}" if len(names) > MAX_NAMED else ""
            return ", ".join(names[:MAX_NAMED]) + more
        of = f"_{rule.settings['of']}" if rule.kind == kinds.SPENDING else ""
        mine = "_mine" if rule.owner_id and rule.kind in (kinds.BALANCE, kinds.KEY) else ""
        return self.words[f"alerts.scope_{rule.kind}{of}{mine}"].format(**rule.settings)


def _amount(text: str) -> str:
    """Format an amount of a rule with 2 decimals, or with all if it has more."""
    return money(text, max(2, len(text.partition(".")[2])))


def shape_of(rule: Rule) -> str:
    """Return the shape of a rule's state."""
    grave = "bad" if kinds.KINDS[rule.kind].grave else "warn"
    return SHAPES.get(rule.state, grave)


def message_shape(kind: str, state: str) -> str:
    """Return the shape of a message's state."""
    if state != "firing":
        return {"over": "ok"}.get(state, "idle")
    return "bad" if kind in kinds.KINDS and kinds.KINDS[kind].grave else "warn"


def icon_of(kind: str) -> str:
    """Return the icon for a kind of destination."""
    return {WEBHOOK: "hook", MAIL: "mail", OWNER: "mail"}.get(kind, "chat")


def uses_mail(rules: Sequence[Rule], places: Sequence[Destination]) -> int:
    """Return how many enabled rules send mail."""
    by_mail = {OWNER, *(place.id for place in places if place.kind == MAIL)}
    return sum(not rule.disabled and bool(by_mail & {*rule.destinations}) for rule in rules)

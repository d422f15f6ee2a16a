"""The page of alerts, and the messages that were sent."""

from http import HTTPStatus

import peewee

from handlers.hub.alerts.owner import AlertApi, AlertPage, uses_mail
from store.alerts import destinations, kinds, outbox, rules
from store.alerts.rules import OWNER

SENT_ON_PAGE = 12
SENT_ROWS, SENT_ROWS_MAX = 50, 500
SAMPLES = {
    "down": (
        *("channel_down", {"channel": "moonshot"}, "Channel moonshot is down since 12:58 UTC"),
        "/admin/channels/moonshot",
    ),
    "limit": (
        *("key", {"key": "bob/ci", "percent": "80"}),
        *("Key ci of bob has used 40.02 USD of 50.00 USD", "/admin/users/bob"),
    ),
    "balance": (
        *("balance", {"user": "bob"}, "bob: 0.0612 USD left, calls are refused"),
        "/admin/users/bob",
    ),
}
"""Sample documents that show what a webhook receives."""


class AlertsPage(AlertPage):
    """/alerts."""

    async def get(self) -> None:
        owner_id = self.owner_id
        listed = await self.store(rules.listed, owner_id)
        places = await self.store(destinations.listed, owner_id)
        sample = self.get_query_argument("sample", "")
        self.show_alerts(
            "page",
            rules=listed,
            places=places,
            names={place.id: place for place in places},
            firing=[rule for rule in listed if rule.state == "firing"],
            sent=await self.store(outbox.listed, owner_id, SENT_ON_PAGE),
            total=await self.store(outbox.count, owner_id),
            mail_ready=bool(self.site.settings.mail.url),
            mail_rules=uses_mail(listed, places),
            unsent=await self.store(outbox.count, owner_id, outbox.NOT_SENT),
            own_mail=await self.store(outbox.mail_of, self.me.user_id),
            sample=sample if sample in SAMPLES else "down",
            SAMPLES=SAMPLES,
        )


class FirstRulesForm(AlertPage):
    """Creates the proposed rules if there are no rules."""

    async def get(self) -> None:
        self.redirect(self.path(), status=HTTPStatus.SEE_OTHER)

    async def post(self) -> None:
        owner_id, actor = self.owner_id, self.me.user
        proposed = kinds.OWN_FIRST if owner_id else kinds.FIRST_FOUR

        def work(db: peewee.Database) -> None:
            if rules.listed(db, owner_id):
                return
            places = [place.id for place in destinations.listed(db, owner_id)]
            for kind in proposed:
                mail = [OWNER] if kinds.KINDS[kind].own else []
                to = [*places[: rules.MAX_DESTINATIONS - 1], *mail]
                rules.create(db, owner_id, {"kind": kind, "destinations": to}, actor)

        await self.store(work)
        self.done("done_first", count=len(proposed))


class SentPage(AlertPage):
    """/alerts/sent: all messages, newest first."""

    async def get(self) -> None:
        after = self.get_query_argument("after", "")
        rows = await self.store(outbox.listed, self.owner_id, SENT_ROWS + 1, after)
        following = rows[SENT_ROWS - 1].id if len(rows) > SENT_ROWS else ""
        places = await self.store(destinations.listed, self.owner_id)
        values = {"sent": rows[:SENT_ROWS], "following": following, "after": after}
        self.show_alerts("sent", names={place.id: place for place in places}, **values)


class SendAgainForm(AlertPage):
    """Sends a message again, with its old id."""

    async def get(self, message_id: str) -> None:
        self.redirect(self.path("/sent"), status=HTTPStatus.SEE_OTHER)

    async def post(self, message_id: str) -> None:
        await self.store(outbox.send_again, self.owner_id, message_id)
        self.done("done_again")


class SentApi(AlertApi):
    """GET /api/alerts/sent."""

    async def get(self) -> None:
        limit = self.number("limit", SENT_ROWS, SENT_ROWS_MAX)
        after = self.get_query_argument("after", "")
        rows = await self.store(outbox.listed, self.owner_id, limit + 1, after)
        following = rows[limit - 1].id if len(rows) > limit else None
        self.answer_list([outbox.public(row) for row in rows[:limit]], following)


class SendAgainApi(AlertApi):
    """POST /api/alerts/sent/ID/again."""

    async def post(self, message_id: str) -> None:
        await self.store(outbox.send_again, self.owner_id, message_id)
        self.answer({"id": message_id, "status": outbox.WAITING})

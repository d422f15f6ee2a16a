"""Destinations of alerts: created (showing a webhook's secret once), tested and removed."""

from http import HTTPStatus
from typing import Any

from handlers.hub.alerts.owner import AlertApi, AlertHandler, AlertPage
from handlers.hub.web.base import Failure, or_refused
from store.alerts import destinations
from store.alerts.destinations import FIELDS
from store.alerts.outbox import Result


def result_to_plain(result: Result) -> dict[str, Any]:
    """Return the result of a test as JSON."""
    return {"ok": result.ok, "result": result.text or None, "took_ms": result.took_ms}


async def send_test(handler: AlertHandler, destination_id: str) -> Result:
    """Send a sample to a destination. Raises Failure if it does not exist."""
    await handler.store(destinations.show, handler.owner_id, destination_id)
    return await handler.site.sending(handler.sender.test, handler.owner_id, destination_id)


class NewDestinationForm(AlertPage):
    """The form of a new destination. After saving it shows the secret, once."""

    async def get(self) -> None:
        self._show({})

    @or_refused
    async def post(self) -> None:
        fields = {name: self.get_body_argument(name, "").strip() for name in FIELDS}
        cipher, actor = self.site.sealing.cipher, self.me.user
        created = await self.store(destinations.create, self.owner_id, fields, cipher, actor)
        destination_id, secret = created
        if secret:
            self.show_alerts("made", name=fields["name"], secret=secret, id=destination_id)
        else:
            self.done("done_destination", name=fields["name"])

    async def refuse(self, failure: Failure) -> None:
        """Render the form with its problems."""
        texts = failure.problems or {failure.field or "": failure.message}
        self._show({name: self.in_words(text) for name, text in texts.items()})

    def _show(self, problems: dict[str, str]) -> None:
        kinds = destinations.OWN_KINDS if self.owner_id else destinations.KINDS
        inputs = {name: self.get_body_argument(name, "") for name in FIELDS}
        above = "; ".join(text for name, text in problems.items() if name not in FIELDS)
        self.show_alerts("destination", kinds=kinds, inputs=inputs, problems=problems, above=above)


class DestinationTestForm(AlertPage):
    """Sends a sample."""

    async def get(self, destination_id: str) -> None:
        self.redirect(self.path(), status=HTTPStatus.SEE_OTHER)

    async def post(self, destination_id: str) -> None:
        result = await send_test(self, destination_id)
        if result.ok:
            self.done("done_test", seconds=f"{(result.took_ms or 0) / 1000:.2f}")
        else:
            self.done("done_test_failed", why=self.result_of(result.text))


class RemoveDestinationForm(AlertPage):
    """The question before a destination is removed."""

    async def get(self, destination_id: str) -> None:
        place = await self.store(destinations.show, self.owner_id, destination_id)
        action = self.path(f"/destinations/{destination_id}/remove")
        self.show_alerts("remove", name=place.name, what="destination", action=action)

    async def post(self, destination_id: str) -> None:
        place = await self.store(destinations.show, self.owner_id, destination_id)
        await self.store(destinations.remove, self.owner_id, destination_id, self.me.user)
        self.done("done_removed", name=place.name)


class DestinationsApi(AlertApi):
    """GET and POST /api/alerts/destinations."""

    async def get(self) -> None:
        rows = await self.store(destinations.listed, self.owner_id)
        self.answer_list([destinations.public(row) for row in rows])

    async def post(self) -> None:
        cipher, actor = self.site.sealing.cipher, self.me.user
        created = await self.store(destinations.create, self.owner_id, self.body(), cipher, actor)
        destination_id, secret = created
        row = await self.store(destinations.show, self.owner_id, destination_id)
        once = {"secret": secret} if secret else {}
        self.answer({**destinations.public(row), **once}, HTTPStatus.CREATED)


class DestinationApi(AlertApi):
    """DELETE /api/alerts/destinations/ID."""

    async def delete(self, destination_id: str) -> None:
        await self.store(destinations.remove, self.owner_id, destination_id, self.me.user)
        self.answer_nothing()


class DestinationTestApi(AlertApi):
    """POST /api/alerts/destinations/ID/test."""

    async def post(self, destination_id: str) -> None:
        result = await send_test(self, destination_id)
        self.answer(result_to_plain(result))

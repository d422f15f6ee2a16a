"""The models that a channel's upstream lists; those that are chosen are added to the channel."""

from handlers.hub.admin.api import channels, objects
from handlers.hub.admin.pages.base import AdminPage, place_of
from handlers.hub.web.base import Failure


class Models(AdminPage):
    """The list, and adding of it."""

    async def get(self, name: str) -> None:
        await self._page(name)

    async def post(self, name: str) -> None:
        chosen = self.get_body_arguments("models")
        channel = await self.store(objects.one, "channel", name)
        models = {**{one: one for one in chosen}, **channel["models"]}
        try:
            await objects.change(self, "channel", name, {"models": models})
        except Failure as failure:
            await self._page(name, failure)
            return
        added = len(models) - len(channel["models"])
        self.say(self.words["admin.done_models"].format(name=name, count=added))
        self.redirect(place_of("channels", name), status=303)

    async def _page(self, name: str, failure: Failure | None = None) -> None:
        if failure is not None:
            self.set_status(failure.status_code)
        asked, offers = await channels.list_models(self, name)
        self.show(
            "admin/upstream_models.html",
            name=name,
            asked=asked,
            offers=offers,
            chosen=self.get_body_arguments("models"),
            problem=failure.message if failure else "",
            action=place_of("channels", name, "models"),
            back=place_of("channels", name),
            place=place_of,
        )

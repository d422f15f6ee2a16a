"""The first run: an administrator's password, a channel that is tested, a key that works.

The first step is for whoever holds a link that `init` and `serve` print, until an administrator can
sign in; the other two are for administrators until there are a channel and a key. Every step is
a form; each answer is the page with the next one.
"""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

from handlers.hub.access.beginning import begin_session
from handlers.hub.web.base import Failure, Page
from operations import channel_test, first_steps
from operations.client_settings import CURLS, base_url
from store.db.base_url import keep_base_url
from store.hub import first_run
from store.money import wallet
from store.values.pricing import parse_money

MAX_MODELS = 10  # of the first channel, each with a real call
CREDIT = "10.00"
ADMIN, GROUP, KEY = "admin", "default", "laptop"
PARTS_OF_MODELS = str.maketrans(",;\r\n\t", "     ")


@dataclass(slots=True)
class View:
    """What the page shows. `step`: the one that is open; 4: all are done."""

    step: int
    token: str = ""
    problem: str = ""
    typed: dict[str, str] = field(default_factory=dict)
    results: list[channel_test.ChannelTest] = field(default_factory=list)
    secret: str = ""
    curl: str = ""

    @property
    def good(self) -> list[str]:
        """The models whose test went well."""
        return [one.model for one in self.results if one.error is None]

    @property
    def answered(self) -> bool:
        """Whether the upstream of the tests has answered at all."""
        return any(one.status is not None for one in self.results)


class FirstRun(Page):
    """GET /first-run: the step that is due; POST: the first one."""

    public = True

    async def get(self) -> None:
        token = self.get_query_argument("token", "")
        if self.signed_in is not None and self.signed_in.admin:
            state = await self.store(first_steps.state)
            if state.finished:
                self.redirect("/", status=HTTPStatus.SEE_OTHER)
                return
            asked = self.get_query_argument("step", "")
            due = int(asked) if asked in ("1", "2", "3") else 3 if state.channels else 2
            await self.page(View(due))
        elif await self.store(first_run.opens, token):
            await self.page(View(1, token=token))
        else:
            raise Failure(HTTPStatus.FORBIDDEN, "first_run_closed", "this link opens nothing")

    async def post(self) -> None:
        token = self.get_body_argument("token", "")
        typed = self.typed("name", "base_url")
        wanted = first_steps.FirstAdmin(
            typed["name"], self.get_body_argument("password", "", strip=False), self._new_url()
        )
        try:
            person = await self.hashing(first_steps.make_admin, self.site.sealing, token, wanted)
        except Failure as failure:
            if failure.status_code == HTTPStatus.NOT_FOUND:
                raise Failure(HTTPStatus.FORBIDDEN, "first_run_closed", failure.message) from None
            await self.refuse(View(1, token=token, typed=typed), failure)
            return
        await self.site.read_base_url(0.0, at_once=True)
        await begin_session(self, person.id)
        self.redirect("/first-run", status=HTTPStatus.SEE_OTHER)

    def typed(self, *names: str) -> dict[str, str]:
        """What was typed into these fields."""
        return {name: self.get_body_argument(name, "").strip() for name in names}

    def _new_url(self) -> str:
        """The base URL that was typed, when it is not the one that holds without it."""
        server, url = self.site.settings.server, self.typed("base_url")["base_url"].rstrip("/")
        same = server.public_url or url in (base_url(server), self.site.base_url)
        return "" if same else url

    async def refuse(self, view: View, failure: Failure) -> None:
        """The step again, with what is wrong; what was typed stays."""
        self.set_status(failure.status_code)
        view.problem = self.in_words(failure.message)
        await self.page(view)

    async def page(self, view: View) -> None:
        """Answers with the page."""
        balance_nanos = 0
        if self.signed_in is not None:
            balance_nanos = (await self.store(wallet.show, self.signed_in.user)).balance_nanos
        group = await self.store(first_steps.group_to_begin_with) or GROUP
        self.show(
            "access/first_run.html",
            view=view,
            vendors=first_steps.START_URLS,
            vendor_models={n: ", ".join(m) for n, m in first_steps.START_MODELS.items()},
            names={"name": ADMIN, "group": group, "key_name": KEY, "credit": CREDIT},
            demo_port=urlsplit(first_steps.DEMO_URL).port,
            demo_silent=view.typed.get("vendor") == "demo" and not view.answered,
            needs_credit=balance_nanos <= 0,
            url_is_fixed=bool(self.site.settings.server.public_url),
        )


class Step(FirstRun):
    """A step for administrators, while the first run is not finished."""

    public = False
    admin = True

    async def prepare(self) -> None:
        await super().prepare()
        # What was sent a second time, as by a reload of the last page, is not done twice.
        if not self._finished and (await self.store(first_steps.state)).finished:
            self.redirect("/", status=HTTPStatus.SEE_OTHER)

    async def get(self) -> None:
        self.redirect("/first-run", status=HTTPStatus.SEE_OTHER)

    @property
    def user(self) -> str:
        """Who takes the step."""
        assert self.signed_in is not None
        return self.signed_in.user


class Address(Step):
    """POST /first-run/address: another base URL."""

    async def post(self) -> None:
        try:
            if url := self._new_url():
                await self.store(keep_base_url, url, self.user)
        except Failure as failure:
            await self.refuse(View(1, typed=self.typed("base_url")), failure)
            return
        await self.site.read_base_url(0.0, at_once=True)
        self.redirect("/first-run", status=HTTPStatus.SEE_OTHER)


class Channel(Step):
    """POST /first-run/channel: makes it and tests every model, or goes on with those that work."""

    async def post(self) -> None:
        fields = ("vendor", "base_url", "name", "group", "models", "input_price", "output_price")
        view = View(2, typed=self.typed(*fields))
        try:
            if self.get_body_argument("do", "test") == "test":
                view.results = await self._tested(view.typed)
                await self.page(view)
                return
            kept = self.get_body_arguments("keep")
            sealing, name = self.site.sealing, view.typed["name"]
            await self.store(first_steps.keep_models, sealing, self.user, name, kept)
        except Failure as failure:
            await self.refuse(view, failure)
            return
        self.redirect("/first-run?step=3", status=HTTPStatus.SEE_OTHER)

    async def _tested(self, typed: dict[str, str]) -> list[channel_test.ChannelTest]:
        models = list(dict.fromkeys(typed["models"].translate(PARTS_OF_MODELS).split()))
        if len(models) > MAX_MODELS:
            told = f"at most {MAX_MODELS} models for a start"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "models")
        wanted = first_steps.FirstChannel(
            vendor=typed["vendor"],
            name=typed["name"],
            group=typed["group"],
            models=models,
            base_url=typed["base_url"],
            key=self.get_body_argument("key", "").strip(),
            input_price=typed["input_price"],
            output_price=typed["output_price"],
        )
        await self.store(first_steps.make_channel, self.site.sealing, self.user, wanted)
        tests = (self._test(wanted.name, model) for model in models)
        return list(await asyncio.gather(*tests))

    async def _test(self, channel: str, model: str) -> channel_test.ChannelTest:
        cipher = self.site.sealing.cipher
        target = await self.store(channel_test.target_of, cipher, channel, model, stream=False)
        result = await channel_test.call(target, self.site.settings.upstream)
        told = {"model": model, "status": result.status, "error": result.error}
        await self.note("test", "channel", channel, **told)
        return result


class Key(Step):
    """POST /first-run/key: group, key and what the first calls cost; ends with a curl."""

    async def post(self) -> None:
        typed = self.typed("group", "key_name", "credit")
        try:
            if typed["credit"]:
                amount_nanos = _nanos(typed["credit"])
                await self.store(first_steps.credit_once, self.user, amount_nanos)
            _, secret = await self.store(
                first_steps.make_key,
                self.site.sealing,
                self.user,
                typed["group"],
                typed["key_name"],
            )
        except Failure as failure:
            await self.refuse(View(3, typed=typed), failure)
            return
        curl = await self._curl(typed["group"], secret)
        await self.page(View(4, typed=typed, secret=secret, curl=curl))

    async def _curl(self, group: str, secret: str) -> str:
        channels = await self.store(first_steps.channels_of, group)
        if not channels:
            return ""
        family, model = channels[0]["family"], next(iter(channels[0]["models"]))
        return CURLS[family][1](self.site.base_url, secret, model)


def _nanos(text: str) -> int:
    try:
        return parse_money(text)
    except ValueError as error:
        told = f"the credit {error}"
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "credit") from None

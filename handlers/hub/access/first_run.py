"""The first run: an administrator's password, a channel that is tested, a key that works.

The first step is for whoever holds a link that `init` and `serve` print, until an administrator can
sign in; the other two are for administrators until a channel and a key exist. Every step is a form;
each answer is the page with the next one.
"""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

from handlers.hub.access.sign_in import begin_session
from handlers.hub.web.base import Failure, Page, amount, invalid, or_refused
from operations import channel_test, first_steps
from operations.channel_test import ChannelTest
from operations.client_settings import base_url, curl
from store.db.base_url import set_base_url
from store.hub import first_run
from store.money import wallet

MAX_MODELS = 10  # of the first channel, each with a real call
CREDIT = "10.00"
ADMIN, GROUP, KEY = "admin", "default", "laptop"
MODEL_SEPARATORS = str.maketrans(",;\r\n\t", "     ")


@dataclass(slots=True)
class FirstRunView:
    """The values of the page. `step`: the open one; 4: all are done."""

    step: int
    token: str = ""
    problem: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    results: list[ChannelTest] = field(default_factory=list)
    secret: str = ""
    curl: str = ""

    @property
    def working_models(self) -> list[str]:
        """Return the models whose test succeeded."""
        return [result.model for result in self.results if result.error is None]

    @property
    def answered(self) -> bool:
        """Tell whether the upstream answered any of the tests."""
        return any(result.status is not None for result in self.results)


class FirstRunPage(Page):
    """GET /first-run: the step that is due; POST: the first one. `view`: of the step of a POST."""

    public = True
    view: FirstRunView

    async def get(self) -> None:
        token = self.get_query_argument("token", "")
        if self.signed_in is not None and self.signed_in.admin:
            state = await self.store(first_steps.state)
            if state.finished:
                self.redirect("/", status=HTTPStatus.SEE_OTHER)
                return
            step = self.get_query_argument("step", "")
            due = int(step) if step in ("1", "2", "3") else 3 if state.channels else 2
            await self.page(FirstRunView(due))
        elif await self.store(first_run.opens, token):
            await self.page(FirstRunView(1, token=token))
        else:
            raise Failure(HTTPStatus.FORBIDDEN, "first_run_closed", "this link opens nothing")

    async def post(self) -> None:
        token = self.get_body_argument("token", "")
        fields = self.fields("name", "base_url")
        admin = first_steps.FirstAdmin(
            fields["name"], self.get_body_argument("password", "", strip=False), self._new_url()
        )
        try:
            person = await self.hashing(first_steps.make_admin, self.site.sealing, token, admin)
        except Failure as failure:
            if failure.status_code == HTTPStatus.NOT_FOUND:
                raise Failure(HTTPStatus.FORBIDDEN, "first_run_closed", failure.message) from None
            self.set_status(failure.status_code)
            self.view = FirstRunView(1, token=token, fields=fields)
            await self.refuse(failure)
            return
        await self.site.read_base_url(0.0, at_once=True)
        await begin_session(self, person.id)
        self.redirect("/first-run", status=HTTPStatus.SEE_OTHER)

    def fields(self, *names: str) -> dict[str, str]:
        """Return fields of the form."""
        return {name: self.get_body_argument(name, "").strip() for name in names}

    def _new_url(self) -> str:
        """Return the base URL of the form; empty when it is the one that holds anyway."""
        server, url = self.site.settings.server, self.fields("base_url")["base_url"].rstrip("/")
        same = server.public_url or url in (base_url(server), self.site.base_url)
        return "" if same else url

    async def refuse(self, failure: Failure) -> None:
        """Answer with the step of `view` again, its fields as they were sent, and the problem."""
        self.view.problem = self.in_words(failure.message)
        await self.page(self.view)

    async def page(self, view: FirstRunView) -> None:
        """Answer with the page."""
        balance_nanos = 0
        if self.signed_in is not None:
            balance_nanos = (await self.store(wallet.show, self.signed_in.user)).balance_nanos
        group = await self.store(first_steps.group_to_begin_with) or GROUP
        self.show(
            "first_run.html",
            view=view,
            vendors=first_steps.START_URLS,
            vendor_models={
                vendor: ", ".join(models) for vendor, models in first_steps.START_MODELS.items()
            },
            names={"name": ADMIN, "group": group, "key_name": KEY, "credit": CREDIT},
            demo_port=urlsplit(first_steps.DEMO_URL).port,
            demo_silent=view.fields.get("vendor") == "demo" and not view.answered,
            needs_credit=balance_nanos <= 0,
            url_is_fixed=bool(self.site.settings.server.public_url),
        )


class FirstRunStep(FirstRunPage):
    """A step for administrators, while the first run is not finished."""

    public = False
    admin = True

    async def prepare(self) -> None:
        await super().prepare()
        # A form that is sent again, as by a reload of the last page, is not done twice.
        if not self._finished and (await self.store(first_steps.state)).finished:
            self.redirect("/", status=HTTPStatus.SEE_OTHER)

    async def get(self) -> None:
        self.redirect("/first-run", status=HTTPStatus.SEE_OTHER)


class BaseUrlStep(FirstRunStep):
    """POST /first-run/address: another base URL."""

    @or_refused
    async def post(self) -> None:
        self.view = FirstRunView(1, fields=self.fields("base_url"))
        if url := self._new_url():
            await self.store(set_base_url, url, self.me.user)
        await self.site.read_base_url(0.0, at_once=True)
        self.redirect("/first-run", status=HTTPStatus.SEE_OTHER)


class ChannelStep(FirstRunStep):
    """POST /first-run/channel: makes it and tests every model, or goes on with those that work."""

    @or_refused
    async def post(self) -> None:
        names = ("vendor", "base_url", "name", "group", "models", "input_price", "output_price")
        view = self.view = FirstRunView(2, fields=self.fields(*names))
        if self.get_body_argument("do", "test") == "test":
            view.results = await self._test_all(view.fields)
            await self.page(view)
            return
        models = self.get_body_arguments("keep")
        sealing, name = self.site.sealing, view.fields["name"]
        await self.store(first_steps.keep_models, sealing, self.me.user, name, models)
        self.redirect("/first-run?step=3", status=HTTPStatus.SEE_OTHER)

    async def _test_all(self, fields: dict[str, str]) -> list[ChannelTest]:
        models = list(dict.fromkeys(fields["models"].translate(MODEL_SEPARATORS).split()))
        if len(models) > MAX_MODELS:
            raise invalid("models", f"at most {MAX_MODELS} models for a start")
        channel = first_steps.FirstChannel(
            vendor=fields["vendor"],
            name=fields["name"],
            group=fields["group"],
            models=models,
            base_url=fields["base_url"],
            key=self.get_body_argument("key", "").strip(),
            input_price=fields["input_price"],
            output_price=fields["output_price"],
        )
        await self.store(first_steps.make_channel, self.site.sealing, self.me.user, channel)
        tests = (self._test(channel.name, model) for model in models)
        return list(await asyncio.gather(*tests))

    async def _test(self, channel: str, model: str) -> ChannelTest:
        cipher = self.site.sealing.cipher
        target = await self.store(channel_test.target_of, cipher, channel, model, stream=False)
        result = await channel_test.call(target, self.site.settings.upstream)
        outcome = {"model": model, "status": result.status, "error": result.error}
        await self.note("test", "channel", channel, **outcome)
        return result


class KeyStep(FirstRunStep):
    """POST /first-run/key: group, key and what the first calls cost; ends with a curl."""

    @or_refused
    async def post(self) -> None:
        fields = self.fields("group", "key_name", "credit")
        self.view = FirstRunView(3, fields=fields)
        if fields["credit"]:
            nanos = amount("credit", fields["credit"], "the credit {}")
            await self.store(first_steps.credit_once, self.me.user, nanos)
        sealing, group, name = self.site.sealing, fields["group"], fields["key_name"]
        key = await self.store(first_steps.make_key, sealing, self.me.user, group, name)
        command, serving = "", await self.store(first_steps.channels_of, group)
        if serving:
            family, model = serving[0]["family"], next(iter(serving[0]["models"]))
            command = curl(family, self.site.base_url, key[1], model)
        await self.page(FirstRunView(4, fields=fields, secret=key[1], curl=command))

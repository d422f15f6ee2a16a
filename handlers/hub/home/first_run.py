"""The first run: an administrator's password, a tested channel, a working key.

Until an administrator can sign in, anybody with a link that `init` or `serve` prints can do the
first step. The other two are for administrators, until a channel and a key exist. The second
consists of the three steps of any new channel (`admin.new_channel`), and is done when a model has
answered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from handlers.hub.access.sign_in import begin_session
from handlers.hub.admin.new_channel import ACCOUNT, STEPS, ChannelWizard
from handlers.hub.web.base import Failure, amount, or_refused
from operations import first_steps
from operations.client_settings import base_url, curl
from store.db.base_url import set_base_url
from store.hub import first_run
from store.money import wallet

PLACE = "/first-run"
CREDIT = "10.00"
ADMIN, GROUP, KEY = "admin", "default", "laptop"


@dataclass(slots=True)
class FirstRunView:
    """The values of the page. `step`: the current step; 4: all are done; `problem_of`: the field
    with the problem, None if unknown."""

    step: int
    token: str = ""
    problem: str = ""
    problem_of: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    secret: str = ""
    curl: str = ""


class FirstRunPage(ChannelWizard):
    """GET /first-run: the step to do next; POST: the first step. `view`: the submitted step of a
    POST."""

    public = True
    admin = False
    first_run = True
    action = f"{PLACE}/channel"
    view: FirstRunView

    async def get(self) -> None:
        token = self.get_query_argument("token", "")
        if self.signed_in is not None and self.signed_in.admin:
            state = await self.store(first_steps.state)
            if state.finished:
                self.redirect("/", status=HTTPStatus.SEE_OTHER)
                return
            step = self.get_query_argument("step", "")
            due = int(step) if step in ("1", "2", "3") else 3 if state.channel else 2
            if due == 2:
                part = self.get_query_argument("part", "")
                await self.show_step(int(part) if part in map(str, STEPS) else ACCOUNT)
            else:
                await self.page(FirstRunView(due))
        elif await self.store(first_run.opens, token):
            await self.page(FirstRunView(1, token=token))
        else:
            raise Failure(HTTPStatus.FORBIDDEN, "first_run_closed", "this link is no longer valid")

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
        """Return fields of the submitted form."""
        return {name: self.get_body_argument(name, "").strip() for name in names}

    def _new_url(self) -> str:
        """Return the base URL in the form, or "" if it is in force anyway."""
        server, url = self.site.settings.server, self.fields("base_url")["base_url"].rstrip("/")
        same = server.public_url or url in (base_url(server), self.site.base_url)
        return "" if same else url

    async def refuse(self, failure: Failure) -> None:
        """Render the step of `view` again, with its submitted fields and the problem."""
        self.view.problem, self.view.problem_of = self.in_words(failure.message), failure.field
        await self.page(self.view)

    def step_path(self, step: int, **query: str) -> str:
        return f"{PLACE}?{urlencode({'step': 2, 'part': step, **query})}"

    def end_path(self, name: str) -> str:
        return f"{PLACE}?step=3"

    async def render_step(self, values: Mapping[str, Any]) -> None:
        await self.page(FirstRunView(2), **values)

    async def page(self, view: FirstRunView, **values: Any) -> None:
        """Render the page. `values`: those of the channel's steps."""
        balance_nanos = 0
        if self.signed_in is not None:
            balance_nanos = (await self.store(wallet.show, self.signed_in.user)).balance_nanos
        group = await self.store(first_steps.group_to_begin_with) or GROUP
        self.show(
            "first_run.html",
            view=view,
            names={"name": ADMIN, "group": group, "key_name": KEY, "credit": CREDIT},
            needs_credit=balance_nanos <= 0,
            url_is_fixed=bool(self.site.settings.server.public_url),
            **values,
        )


class FirstRunStep(FirstRunPage):
    """A step for administrators, until the first run is finished."""

    public = False
    admin = True

    async def prepare(self) -> None:
        await super().prepare()
        # Reloading the last page must not submit its form twice.
        if not self._finished and (await self.store(first_steps.state)).finished:
            self.redirect("/", status=HTTPStatus.SEE_OTHER)

    async def get(self) -> None:
        self.redirect("/first-run", status=HTTPStatus.SEE_OTHER)


class BaseUrlStep(FirstRunStep):
    """POST /first-run/address: changes the base URL."""

    @or_refused
    async def post(self) -> None:
        self.view = FirstRunView(1, fields=self.fields("base_url"))
        if url := self._new_url():
            await self.store(set_base_url, url, self.me.user)
        await self.site.read_base_url(0.0, at_once=True)
        self.redirect("/first-run", status=HTTPStatus.SEE_OTHER)


class ChannelStep(FirstRunStep):
    """POST /first-run/channel: the forms of the channel's steps."""

    async def post(self) -> None:
        await self.take_step()


class KeyStep(FirstRunStep):
    """POST /first-run/key: creates the group, the key and the credit for the first calls, and shows
    a curl command."""

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

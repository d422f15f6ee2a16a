"""The account: password, sessions, API tokens; and who one is, for scripts."""

from handlers.hub.web.base import Api, Page
from store.hub import membership, people, sessions, tokens
from store.money import wallet
from store.values.errors import Refused
from store.values.pricing import format_money


class Account(Page):
    """The page, also after a change."""

    async def get(self) -> None:
        await self.page()

    async def page(
        self, done: str = "", problem: str = "", detail: str = "", token: str = ""
    ) -> None:
        """Answers with the page."""
        assert self.signed_in is not None
        me = self.signed_in
        self.show(
            "access/account.html",
            sessions=await self.store(sessions.of_user, me.user_id),
            tokens=[one for one in await self.store(tokens.listed, me.user) if not one.revoked_ms],
            scopes=[scope for scope in tokens.SCOPES if scope != "admin" or me.admin],
            done=done,
            problem=problem,
            detail=detail,
            token=token,
        )


class Password(Account):
    """Changes the password, which ends all other sessions."""

    async def get(self) -> None:
        self.redirect("/account", status=303)

    async def post(self) -> None:
        assert self.signed_in is not None
        me = self.signed_in
        old = self.get_body_argument("old", strip=False)
        new = self.get_body_argument("new", strip=False)
        try:
            await self.site.password(people.change_password, me.user, old, new)
        except Refused as error:
            self.set_status(400)
            await self.page(problem="password_refused", detail=str(error))
            return
        await self.store(sessions.end_others, me.user_id, me.session_id)
        await self.page(done="password_changed")


class Sessions(Account):
    """Ends one session of the user, or all others."""

    async def get(self) -> None:
        self.redirect("/account", status=303)

    async def post(self) -> None:
        assert self.signed_in is not None
        me, wanted = self.signed_in, self.get_body_argument("id")
        if wanted == "others":
            await self.store(sessions.end_others, me.user_id, me.session_id)
        else:
            await self.store(sessions.end, me.user_id, wanted)
        await self.page(done="session_ended")


class Tokens(Account):
    """Makes and revokes tokens of the JSON API."""

    async def get(self) -> None:
        self.redirect("/account", status=303)

    async def post(self) -> None:
        assert self.signed_in is not None
        me = self.signed_in
        if revoked := self.get_body_argument("revoke", ""):
            await self.store(tokens.revoke, revoked, user_id=me.user_id, actor=me.user)
            await self.page(done="token_revoked")
            return
        scopes = self.get_body_arguments("scope")
        name = self.get_body_argument("name", "")
        _, token = await self.store(tokens.create, me.user, scopes, name=name, actor=me.user)
        await self.page(token=token)


class ApiMe(Api):
    """GET /api/me."""

    async def get(self) -> None:
        assert self.signed_in is not None
        me = self.signed_in
        purse = await self.store(wallet.show, me.user)
        groups = await self.store(membership.groups_of, me.user_id, admin=me.admin)
        balance = format_money(purse.balance_nanos)
        self.answer({"user": me.user, "role": me.role, "balance": balance, "groups": groups})

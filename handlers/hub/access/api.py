"""The account for scripts: who one is, sessions, tokens."""

from http import HTTPStatus

from handlers.hub.access.agents import browser_of
from handlers.hub.access.beginning import end_session
from handlers.hub.web.base import Api, Failure
from store.hub import membership, sessions, tokens
from store.hub.sessions import SignedIn
from store.money import wallet
from store.values.pricing import format_money
from store.values.usage_record import rfc3339


class AccountApi(Api):
    """An endpoint about who asks."""

    @property
    def me(self) -> SignedIn:
        """Who asks."""
        assert self.signed_in is not None
        return self.signed_in


class Me(AccountApi):
    """GET /api/me."""

    async def get(self) -> None:
        me = self.me
        purse = await self.store(wallet.show, me.user)
        groups = await self.store(membership.groups_of, me.user_id, admin=me.admin)
        balance = format_money(purse.balance_nanos)
        self.answer({"user": me.user, "role": me.role, "balance": balance, "groups": groups})


class SessionList(AccountApi):
    """GET /api/sessions."""

    async def get(self) -> None:
        found = await self.store(sessions.of_user, self.me.user_id)
        items = [
            {
                "id": one.id,
                "created_at": rfc3339(one.created_ms),
                "seen_at": rfc3339(one.seen_ms),
                "address": one.address,
                "browser": browser_of(one.agent),
                "user_agent": one.agent,
                "current": one.id == self.me.session_id,
            }
            for one in found
        ]
        self.answer({"items": items, "next": None})


class OneSession(AccountApi):
    """DELETE /api/sessions/ID."""

    async def delete(self, session_id: str) -> None:
        if not await end_session(self, self.me, session_id):
            raise Failure(HTTPStatus.NOT_FOUND, "not_found", "there is no such session")
        self.answer({"ended": session_id})


class TokenList(AccountApi):
    """GET and POST /api/tokens."""

    async def get(self) -> None:
        found = await self.store(tokens.listed, self.me.user)
        self.answer({"items": [tokens.public(row) for row in found], "next": None})

    async def post(self) -> None:
        given = self.body()
        scopes, name = given.get("scopes"), given.get("name", "")
        if not isinstance(scopes, list) or not all(isinstance(one, str) for one in scopes):
            told = f"scopes must be a list of: {', '.join(tokens.SCOPES)}"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "scopes")
        if not isinstance(name, str):
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "name must be a string", "name")
        if self.me.scopes is not None and not self.me.scopes.issuperset(scopes):
            told = "a token makes no token that may do more than itself"
            raise Failure(HTTPStatus.FORBIDDEN, "forbidden", told, "scopes")
        user = self.me.user
        token_id, token = await self.store(tokens.create, user, scopes, name=name, actor=user)
        self.answer({"id": token_id, "token": token}, HTTPStatus.CREATED)


class OneToken(AccountApi):
    """DELETE /api/tokens/ID: it is revoked."""

    async def delete(self, token_id: str) -> None:
        me = self.me
        await self.store(tokens.revoke, token_id, user_id=me.user_id, actor=me.user)
        self.answer({"revoked": token_id})

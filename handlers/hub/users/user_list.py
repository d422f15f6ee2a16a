"""The list of users, for administrators: filtered by role and state, sorted, with each user's
spend, last call and number of keys."""

from collections.abc import Mapping
from typing import Any

import peewee

from handlers.hub.admin import objects
from handlers.hub.admin.objects import ObjectListApi, ObjectListPage
from handlers.hub.web.admin import AdminHandler, path_of
from handlers.hub.web.base import invalid
from handlers.hub.web.formats import address
from store.admin import user_list
from store.admin.kinds import ROLES
from store.admin.listing import ListPage
from store.admin.user_list import NAME, SORTS, STATES, UserQuery

PLURAL = "users"
FILTERS: Mapping[str, tuple[str, ...]] = {"role": tuple(ROLES), "state": STATES, "sort": SORTS}
OPTION_WORDS: Mapping[str, str] = {
    **{"member": "admin.o_member", "admin": "admin.o_admin"},
    **{"active": "admin.active", "disabled": "admin.disabled"},
}


def query_of(handler: AdminHandler) -> UserQuery:
    """Return the query of a request. Raises Failure."""
    paging = handler.paging()
    chosen = {name: handler.get_query_argument(name, "") for name in FILTERS}
    for name, value in chosen.items():
        if value and value not in FILTERS[name]:
            raise invalid(name, f"{name} must be one of {', '.join(FILTERS[name])}")
    chosen["sort"] = chosen["sort"] or NAME
    return UserQuery(paging.limit, paging.after, paging.search, **chosen)


def load_list(db: peewee.Database, query: UserQuery) -> ListPage:
    """Return a page of the list. Raises Refused."""
    items, following = user_list.page(db, query)
    return ListPage(objects.complete(db, "user", items), following)


class UserListApi(ObjectListApi):
    """GET and POST /api/admin/users."""

    async def get(self, plural: str = PLURAL) -> None:
        part = await self.store(load_list, query_of(self))
        self.answer_list(part.items, part.next)

    async def post(self, plural: str = PLURAL) -> None:
        await super().post(plural)


class UserListPage(ObjectListPage):
    """/admin/users: the list or, with `?new`, the form of a new user."""

    async def get(self, plural: str = PLURAL) -> None:
        if self.get_query_argument("new", None) is not None:
            await super().get(plural)
            return
        query = query_of(self)
        part = await self.store(load_list, query)
        chosen: dict[str, Any] = {name: getattr(query, name) for name in FILTERS}
        sort = chosen.pop("sort")
        fields = {"search": query.search, **chosen, "sort": "" if sort == NAME else sort}
        self.show_list(
            PLURAL,
            part,
            self.paging(),
            narrowed=any(chosen.values()),
            filters=chosen,
            sort=sort,
            link=lambda **changed: address(path_of(PLURAL), **{**fields, **changed}),
            option_words=OPTION_WORDS,
        )

    async def post(self, plural: str = PLURAL) -> None:
        await self.create_submitted(plural)

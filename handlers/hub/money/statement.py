"""The monthly statement of a wallet, as a page that prints on one sheet, as CSV and as JSON; for
the user's own wallet and, for administrators, any wallet."""

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.money.wallet import decimals_of, padded, reason_of
from handlers.hub.web import exports, zones
from handlers.hub.web.admin import AdminApi, AdminPage, path_of
from handlers.hub.web.base import Api, Failure, HubHandler, Page, invalid
from store.calls.reading import statement
from store.calls.reading.statement import CSV_COLUMNS, Statement, format_month, month_after
from store.money import wallet
from store.values.ids import now_ms
from store.values.usage_record import csv_row

OWN_PATH = "/wallet/statement"


def month_of(handler: HubHandler) -> int:
    """Return the requested month, by default the current one. Raises Failure."""
    text = handler.get_query_argument("month", "")
    try:
        return statement.parse_month(text) if text else statement.month_at(now_ms())
    except ValueError as error:
        raise invalid("month", f"month {error}") from None


def load(db: peewee.Database, name: str, month: int) -> Statement:
    """Read the statement of a user. Raises NotFound, Refused."""
    owner = wallet.find_owner(db, name)
    return statement.statement_of(db, owner.id, name, month)


def values_of(sheet: Statement, path: str, back: str) -> Mapping[str, Any]:
    """Return the values for the page's template. `path`: the path of the statement."""
    present = statement.month_at(now_ms())
    amounts = (
        *(sheet.opening_nanos, sheet.charged_nanos, sheet.closing_nanos),
        *(line.amount_nanos for line in (*sheet.lines, *sheet.refunds)),
        *(model.cost_nanos for model in sheet.models),
    )
    return {
        "statement": sheet,
        "month": format_month(sheet.month),
        "before": format_month(month_after(sheet.month, -1)),
        "present": format_month(present),
        "following": format_month(month_after(sheet.month)) if sheet.month < present else "",
        "is_open": sheet.month == present,
        "place": path,
        "back": back,
        "padded": padded,
        "reason_of": reason_of,
        "month_words": month_words,
        "day_words": zones.utc_day_text,
        "decimals": decimals_of(amounts),
    }


def month_words(month: str, language: str) -> str:
    """Return a month (2026-11) as text."""
    return zones.month_text(datetime.strptime(month, "%Y-%m"), language)


async def show(page: Page, name: str, path: str, back: str) -> None:
    """Render the statement of a user. If the month is invalid or in the future, show the current
    month and a problem."""
    present = statement.month_at(now_ms())
    try:
        month = month_of(page)
    except Failure:
        month = present + 1
    is_wrong = month > present
    if is_wrong:
        page.set_status(HTTPStatus.BAD_REQUEST)
    sheet = await page.store(load, name, min(month, present))
    page.show("statement.html", is_wrong=is_wrong, **values_of(sheet, path, back))


async def send_csv(handler: HubHandler, sheet: Statement) -> None:
    """Answer with a statement as CSV."""
    await exports.note(handler, "statement", "csv")
    name = f"statement-{format_month(sheet.month)}.csv"
    handler.set_header("Content-Type", exports.TYPES["csv"])
    handler.set_header("Content-Disposition", f'attachment; filename="{name}"')
    rows = [[row[field] for field in CSV_COLUMNS] for row in statement.csv_rows(sheet)]
    handler.finish("".join(map(csv_row, [CSV_COLUMNS, *rows])))


class StatementPage(Page):
    """/wallet/statement?month=2026-11."""

    async def get(self) -> None:
        await show(self, self.me.user, OWN_PATH, "/wallet")


class StatementCsv(Page):
    """/wallet/statement.csv?month=2026-11."""

    async def get(self) -> None:
        await send_csv(self, await self.store(load, self.me.user, month_of(self)))


class StatementApi(Api):
    """GET /api/wallet/statement?month=2026-11."""

    async def get(self) -> None:
        sheet = await self.store(load, self.me.user, month_of(self))
        self.answer(statement.public(sheet, self.site.settings.money.currency))


class UserStatementPage(AdminPage):
    """/admin/users/NAME/statement?month=2026-11."""

    async def get(self, name: str) -> None:
        await show(self, name, path_of("users", name, "statement"), path_of("users", name))


class UserStatementCsv(AdminPage):
    """/admin/users/NAME/statement.csv?month=2026-11."""

    async def get(self, name: str) -> None:
        await send_csv(self, await self.store(load, name, month_of(self)))


class UserStatementApi(AdminApi):
    """GET /api/admin/users/NAME/statement?month=2026-11."""

    async def get(self, name: str) -> None:
        sheet = await self.store(load, name, month_of(self))
        self.answer(statement.public(sheet, self.site.settings.money.currency))

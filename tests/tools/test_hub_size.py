"""The store for timing the Hub: its books are correct, and no page is left out."""

import re

import pytest
from tornado.web import RequestHandler

from handlers.hub.routes import ROUTES
from store.calls import rollups, usage_queries
from store.db.database import select_rows
from store.db.tables.usage import UsageByDay, UsageRow
from store.money import books
from store.values.ids import day_of, ulid_ms
from tools.bench.harness import store
from tools.bench.hub_pages import ADMIN_PAGES, MEMBER_PAGES, UNTIMED
from tools.bench.usage_records import fill_days

ROWS, DAYS = 1_500, 5


@pytest.mark.parametrize("kind", ["sqlite", "mariadb"])
def test_copied_days_agree_with_their_sums_and_with_the_ledger(kind, request, tmp_path):
    mysql = kind == "mariadb"
    url = request.getfixturevalue("mariadb").fresh_url() if mysql else f"sqlite:///{tmp_path}/db"
    with store(url, schema=True) as db:
        list(fill_days(db, ROWS, DAYS))
        assert [*usage_queries.verify(db), *rollups.verify(db), *books.verify(db)] == []
        for table in (UsageRow, UsageByDay):
            assert len({day for (day,) in select_rows(db, table.select(table.day))}) == DAYS + 1
        begun = UsageRow.select(UsageRow.id, UsageRow.started_ms, UsageRow.day)
        for call_id, started_ms, day in select_rows(db, begun):
            assert (ulid_ms(call_id), day_of(call_id)) == (started_ms, day)


def test_every_route_of_pages_and_endpoints_is_timed():
    timed = {page.partition("?")[0] for page in (*MEMBER_PAGES, *ADMIN_PAGES)}
    left_out = [
        pattern
        for pattern, handler in ROUTES
        if handler.get is not RequestHandler.get
        and not UNTIMED.fullmatch(pattern)
        and not any(re.fullmatch(pattern, page) for page in timed)
    ]
    assert left_out == []

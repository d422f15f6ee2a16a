"""Every link of home, channel status and wallet leads to a page, and to the rows of its figure."""

import html
import re

import pytest

from store.channels.status import DOWN_CALLS
from store.hub import own_keys
from store.money import wallet
from store.values.ids import DAY_MS
from tests.handlers.hub.overview_world import book, call, edit, user_id

KEY = '[[key]]\nuser = "alice"\nname = "lap top"\ngroup = "coding"\n'


@pytest.fixture(autouse=True)
def calls(db, world, tmp_path):
    """Create calls of many kinds, from today and before, and a model that is down."""
    edit(db, tmp_path, KEY)
    [key] = own_keys.owned(db, user_id(db, "alice"), 0)
    own = {"key_id": key.id, "key_name": key.name}
    unknown = {"outcome": "refused", "error_code": "model_not_found", "attempts": ()}
    book(
        db,
        *(call(db, outcome="upstream_error", **own) for _ in range(DOWN_CALLS)),
        *(call(db, model="gpt-5-mini", ago_ms=days * DAY_MS, **own) for days in range(3)),
        *(call(db, model="gpt 5.5 & more", **unknown, **own) for _ in range(2)),
    )
    wallet.credit(db, "alice", wallet.Movement(10**9, "gift"))


def test_figures_lead_to_their_calls(alice):
    def calls_behind(path, pattern):
        [(link, count)] = re.findall(pattern, alice.get(path).text)
        items = alice.get("/api" + html.unescape(link)).json["items"]
        assert count in ("Failed calls", str(len(items)))
        return items

    failed = calls_behind("/status?group=coding", r'href="(/usage\?[^"]*)">(Failed calls)')
    assert [row["outcome"] for row in failed] == ["upstream_error"] * DOWN_CALLS
    failed = calls_behind("/", r'href="(/usage\?[^"]*)">All (\d+) of the last 24 hours')
    assert len(failed) == DOWN_CALLS + 2
    unknown = r'<td class="num"[^>]*><a class="opens" href="(/usage\?[^"]*error_code[^"]*)">(2)</a>'
    assert {row["model"] for row in calls_behind("/status", unknown)} == {"gpt 5.5 & more"}

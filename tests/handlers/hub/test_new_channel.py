"""A new channel as a draft: the JSON API, and the three steps without script."""

import json
import re
from pathlib import Path

import pytest

from adapters.registry import VENDORS
from adapters.vendor_cards import CARDS
from handlers.hub.admin import new_channel
from store.admin.export import list_objects, show
from store.db.audit import entries
from store.db.database import select_rows
from store.db.tables.hub import ChannelDraft
from store.hub import drafts
from tests.handlers.hub.script import UPSTREAM_KEY, http
from tests.support.upstream import RawUpstream

VENDORS_PAGE = Path(__file__).parents[3] / "docs" / "vendors.md"
DRAFT = "/api/admin/channels/draft"
PAGE = "/admin/channels/new"
NAMES = ("gpt-4o", "mistral-embed", "unheard-of", "broken")


def vendor_of(request):
    """A vendor with a list, whose model `broken` answers with an error."""
    if request.startswith(b"GET"):
        return http({"object": "list", "data": [{"id": name} for name in NAMES]})
    if b"broken" in request:
        return http(
            {"error": {"message": f"not with {UPSTREAM_KEY}", "type": "x"}}, "403 Forbidden"
        )
    message = {"role": "assistant", "content": "ready, at once"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return http({**answer, "choices": [choice], "usage": usage})


@pytest.fixture
def vendor():
    with RawUpstream(vendor_of) as upstream:
        yield upstream


@pytest.fixture
def account(vendor):
    return {
        **{"name": "new", "vendor": "openai-compatible", "family": "chat_completions"},
        **{"base_url": vendor.url, "keys": [UPSTREAM_KEY]},
    }


def rows_of(draft):
    return {row["upstream"]: row for row in draft["models"]}


def test_each_vendor_has_a_card(api):
    assert CARDS.keys() == VENDORS.keys()
    assert len({card.monogram for card in CARDS.values()}) == len(CARDS)
    items = {row["name"]: row for row in api.listed("/api/admin/vendors")}
    assert items.keys() == VENDORS.keys()
    documented = re.findall(r"^\| `([\w-]+)` \| `(http[^`]+)` \|", VENDORS_PAGE.read_text(), re.M)
    assert len(documented) > 30
    assert {name: items[name]["base_url"] for name, _ in documented} == dict(documented)
    assert items["deepseek"]["paths"]["messages"] == "/anthropic/v1/messages"


def test_a_channel_is_drafted_tested_and_saved_by_the_api(api, db, account):
    assert api.call("GET", DRAFT).status == 404
    answer = api.call("POST", DRAFT, {"channel": account})
    assert answer.status == 200 and answer.json["secrets"] == {"keys": 1}
    draft = api.call("POST", f"{DRAFT}/upstream-models").json
    rows = rows_of(draft)
    assert draft["list"]["ok"] and rows.keys() == set(NAMES)
    assert [name for name, row in rows.items() if row["chosen"]] == ["gpt-4o"]
    assert rows["gpt-4o"]["price"]["input"] and rows["mistral-embed"]["kind"] != "chat"
    price = {"input": "10", "output": "100"}
    models = [
        {"upstream": "unheard-of", "name": "public", "price": price},
        {"upstream": "broken", "price": price},
        {"upstream": "gpt-4o", "chosen": False},
    ]
    assert api.call("POST", DRAFT, {"models": models, "cost_factor": "0.5"}).status == 200
    tests = {row["model"]: row for row in api.call("POST", f"{DRAFT}/test", {}).json["items"]}
    assert tests["unheard-of"]["ok"] and tests["unheard-of"]["answer"] == "ready, at once"
    assert tests["broken"]["status"] == 403 and UPSTREAM_KEY not in json.dumps(tests)
    rows = rows_of(api.call("GET", DRAFT).json)
    assert rows["unheard-of"]["test"]["cost"] == "0.02" and not rows["broken"]["chosen"]
    assert list_objects(db, "channel") == [] and list_objects(db, "model") == []
    answer = api.call("POST", f"{DRAFT}/save", {"enabled": False})
    assert answer.status == 201, answer.text
    channel = show(db, "channel", "new")
    assert channel["models"] == {"public": "unheard-of"} and not channel["enabled"]
    assert channel["cost_factor"] == "0.5" and show(db, "model", "public")["price"] == {
        **price,
        "call": "0",
    }
    assert api.call("GET", DRAFT).status == 404
    assert {"test", "create"} <= {row["action"] for row in entries(db, 9)}
    assert UPSTREAM_KEY not in str(entries(db, 9))


def test_a_draft_is_sealed_of_one_session_and_kept_for_a_day(api, boss, db, account):
    api.call("POST", DRAFT, {"channel": account})
    [(sealed,)] = select_rows(db, ChannelDraft.select(ChannelDraft.sealed))
    assert UPSTREAM_KEY not in sealed and "new" not in sealed
    assert boss.get(DRAFT).status == 404  # another session of the same user
    ChannelDraft.update(changed_ms=ChannelDraft.changed_ms - drafts.LIFETIME_MS).execute(db)
    assert api.call("GET", DRAFT).status == 404
    api.call("POST", DRAFT, {"channel": account})
    assert api.call("DELETE", DRAFT).status == 204 and api.call("GET", DRAFT).status == 404


@pytest.mark.parametrize(
    "changes, field",
    [
        ({"ca_file": "/etc/passwd"}, "ca_file"),
        ({"base_url": "ftp://x"}, "base_url"),
        ({"vendor": "nobody"}, "vendor"),
        ({"groups": ["nowhere"]}, "groups"),
        ({"keys": ["env:HOME"]}, "keys"),
    ],
)
def test_an_account_is_checked_as_an_edit_over_http(api, account, changes, field):
    assert api.refused("POST", DRAFT, {"channel": account | changes})[:2] == (400, field)


def test_a_draft_that_leads_elsewhere_needs_its_keys_again(api, account):
    api.call("POST", DRAFT, {"channel": account})
    same = {name: value for name, value in account.items() if name != "keys"}
    assert api.call("POST", DRAFT, {"channel": same}).json["secrets"] == {"keys": 1}
    for move in ({"base_url": "http://127.0.0.2:9"}, {"proxy": "http://127.0.0.1:1"}):
        assert api.refused("POST", DRAFT, {"channel": same | move})[:2] == (400, "keys")
    assert api.call("POST", DRAFT, {"channel": account | move}).status == 200


def test_a_private_address_is_not_called_where_that_is_forbidden(serve, account):
    boss = serve(upstream={"allow_private": False}).signed_in("boss")
    boss.api("POST", DRAFT, {"channel": account})
    listed = boss.api("POST", f"{DRAFT}/upstream-models").json["list"]
    assert not listed["ok"] and listed["status"] is None


def test_what_is_wrong_with_a_body_is_named(api, account, monkeypatch):
    api.call("POST", DRAFT, {"channel": account})
    for body, field in (
        ({"models": "x"}, "models"),
        ({"models": [{"name": "x"}]}, "models"),
        ({"models": [{"upstream": "x", "price": {"odd": "1"}}]}, "models"),
        ({"channel": 1}, "channel"),
        ({"pay": "odd"}, "pay"),
        ({"cost_factor": "much"}, "cost_factor"),
        ({"weight": "1.5"}, "weight"),
    ):
        assert api.refused("POST", DRAFT, body)[:2] == (400, field), body
    assert api.refused("POST", f"{DRAFT}/test", {"models": ["x"]})[:2] == (400, "models")
    assert api.refused("POST", f"{DRAFT}/save")[:2] == (400, "models")
    api.call("POST", DRAFT, {"models": [{"upstream": "x"}]})
    assert "price" in api.refused("POST", f"{DRAFT}/save")[2]
    monkeypatch.setattr(new_channel, "MAX_CHOSEN", 0)
    assert api.refused("POST", f"{DRAFT}/test")[:2] == (400, "models")
    api.create("channels", account | {"models": {}})
    assert api.refused("POST", DRAFT, {"channel": account})[0] == 409

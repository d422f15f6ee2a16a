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
    """Return a vendor with a list of models, of which `broken` answers with an error."""
    if request.startswith(b"GET"):
        return http({"object": "list", "data": [{"id": name} for name in NAMES]})
    if b"broken" in request:
        return http(
            {"error": {"message": f"not with {UPSTREAM_KEY}", "type": "x"}}, "403 Forbidden"
        )
    message = {"role": "assistant", "content": "ready, at once"}
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    answer = {"id": "chatcmpl-1", "created": 1, "model": "m", "usage": usage}
    choice = {"index": 0, "finish_reason": "stop"}
    if b'"stream":true' not in request.replace(b" ", b""):
        choice["message"] = message
        return http({**answer, "object": "chat.completion", "choices": [choice]})
    choice["delta"] = message
    chunk = json.dumps({**answer, "object": "chat.completion.chunk", "choices": [choice]})
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return f"{head}data: {chunk}\n\ndata: [DONE]\n\n".encode()


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


def test_a_draft_has_a_bounded_number_of_models(api, account, monkeypatch):
    monkeypatch.setattr("operations.channel_draft.MAX_MODELS", 3)
    api.call("POST", DRAFT, {"channel": account})
    for name in ("a", "b", "c"):
        assert api.call("POST", DRAFT, {"models": [{"upstream": name}]}).status == 200
    assert api.refused("POST", DRAFT, {"models": [{"upstream": "d"}]})[:2] == (400, "models")
    assert [*rows_of(api.call("GET", DRAFT).json)] == ["a", "b", "c"]


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
    assert UPSTREAM_KEY not in sealed and "openai-compatible" not in sealed
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


# ---- the pages, without script


def step_1(vendor, **fields):
    account = {"vendor": "openai-compatible", "name": "new", "base_url": vendor.url}
    return list(
        {**account, "keys": UPSTREAM_KEY, "groups": "default", "do": "list", **fields}.items()
    )


def step_2(do="test", **fields):
    rows = [("row", name) for name in NAMES]
    return [*rows, *fields.items(), ("do", do)]


@pytest.fixture
def boss_at_2(boss, vendor):
    boss.get(PAGE)
    answer = boss.send(PAGE, step_1(vendor))
    assert (answer.status, answer.place) == (303, f"{PAGE}?step=2"), answer.text
    return boss


def test_the_cards_fill_what_a_form_leaves_empty(boss, db):
    text = boss.get(f"{PAGE}?vendor=mistral").text
    assert 'value="mistral" checked' in text and "https://console.mistral.ai/api-keys" in text
    assert "https://api.mistral.ai/v1/chat/completions" in text
    assert text.count('name="vendor"') == len(VENDORS)
    answer = boss.send(PAGE, [("vendor", "mistral"), ("groups", "default"), ("do", "names")])
    assert answer.place == f"{PAGE}?step=2"
    assert "This vendor lists no models." in boss.get(answer.place).text
    draft = boss.api("GET", DRAFT).json["channel"]
    assert draft["base_url"] == "https://api.mistral.ai" and draft["name"] == "mistral"


def test_headers_and_proxy_of_a_draft_can_be_taken_away(boss, account):
    secret = {"extra_headers": {"x-team": "a"}, "proxy": "http://127.0.0.1:1"}
    stored = boss.api("POST", DRAFT, {"channel": account | secret}).json["secrets"]
    assert stored == {"keys": 1, "extra_headers": 1, "proxy": 1}
    page = boss.get(f"{PAGE}?step=1").text
    assert "Remove the stored headers" in page and "Remove the stored proxy" in page
    fields = [(name, account[name]) for name in ("name", "vendor", "family", "base_url")]
    fields += [("keys", UPSTREAM_KEY), ("groups", "default"), ("do", "names")]
    boss.send(PAGE, fields)
    assert boss.api("GET", DRAFT).json["secrets"] == stored
    answer = boss.send(PAGE, [*fields, ("remove", "proxy"), ("remove", "extra_headers")])
    assert answer.place == f"{PAGE}?step=2"
    assert boss.api("GET", DRAFT).json["secrets"] == {"keys": 1}
    assert "Remove the stored" not in boss.get(f"{PAGE}?step=1").text


def test_a_list_that_fails_says_why_and_saves_nothing(boss, db):
    refusal = http({"error": {"message": f"bad key {UPSTREAM_KEY}"}}, "401 Unauthorized")
    with RawUpstream(refusal) as bad:
        boss.get(PAGE)
        answer = boss.send(PAGE, step_1(bad))
        assert answer.place == f"{PAGE}?step=1"
        text = boss.get(answer.place).text
        assert f"401 from {bad.url}" in text and "Change the key" in text
        assert UPSTREAM_KEY not in text and "Nothing was saved." in text
    with RawUpstream(http({"error": {"message": "no"}}, "404 Not Found")) as without:
        place = boss.send(PAGE, step_1(without)).place
        assert place == f"{PAGE}?step=2" and "lists no models" in boss.get(place).text
    problem = boss.send(PAGE, step_1(without, base_url="ftp://x"))
    assert problem.status == 400 and "ftp://x" in problem.text


def test_models_are_chosen_priced_tested_and_saved_by_forms(boss_at_2, db):
    boss, place = boss_at_2, f"{PAGE}?step=2"
    text = boss.get(place).text
    assert "embeddings" in text and "no price known" in text and "1 of 4 chosen" in text
    missing = boss.send(PAGE, step_2(chosen="unheard-of"))
    assert missing.place == place
    assert "unheard-of has no price: write input and output" in boss.get(place).text
    boss.send(PAGE, step_2("free", chosen="unheard-of"))
    boss.send(PAGE, step_2("add", added="by-hand, another"))
    names = [row["upstream"] for row in boss.api("GET", DRAFT).json["models"]]
    assert {"by-hand", "another"} <= set(names)
    fields = {"chosen": "unheard-of", "input.unheard-of": "2", "output.unheard-of": "4"}
    boss.send(PAGE, step_2("times", factor="1.5", **fields))
    assert 'value="3"' in boss.get(place).text
    assert boss.send(PAGE, step_2("times", factor="x", **fields)).status == 400
    for part, shows in (("chosen", True), ("unpriced", False)):
        place = boss.send(PAGE, step_2(f"show={part}", **fields)).place
        assert ('name="name.unheard-of"' in boss.get(place).text) == shows
    boss.send(PAGE, [("row", "by-hand"), ("row", "another"), ("do", "show=all")])  # unticked
    chosen = [("chosen", "broken"), ("input.broken", "1"), ("output.broken", "1")]
    answer = boss.send(PAGE, [*step_2("", **fields)[:-1], *chosen, ("do", "test")])
    assert answer.place == f"{PAGE}?step=3"
    assert "Waiting" in boss.get(answer.place).text and list_objects(db, "channel") == []
    rows = [
        ("row", "unheard-of"),
        ("row", "broken"),
        ("chosen", "unheard-of"),
        ("chosen", "broken"),
    ]
    end = [*rows, ("pay", "factor"), ("cost_factor", "0.5"), ("priority", "3"), ("weight", "2")]
    text = boss.get(boss.send(PAGE, [*end, ("do", "run")]).place).text
    assert "1 work" in text and "1 failed" in text and "ready, at once" in text
    assert "not with" in text and UPSTREAM_KEY not in text and "50.0" in text
    end = [row for row in end if row != ("chosen", "broken")]
    wrong = [row if row[0] != "cost_factor" else (row[0], "much") for row in end]
    assert boss.send(PAGE, [*wrong, ("do", "save")]).status == 400
    answer = boss.send(PAGE, [*end, ("do", "save")])
    assert answer.status == 303 and answer.place == "/admin/channels/%6Eew", answer.text
    assert "unheard-of" in boss.get(answer.place).text
    channel = show(db, "channel", "new")
    assert channel["models"] == {"unheard-of": "unheard-of"} and channel["enabled"]
    assert (channel["priority"], channel["weight"], channel["cost_factor"]) == (3, 2, "0.5")
    assert show(db, "model", "unheard-of")["price"]["input"] == "2"


def test_prices_that_are_here_stay(boss_at_2, api, db):
    api.create("models", {"name": "gpt-4o", "price": {"input": "9", "output": "9"}})
    text = boss_at_2.get(f"{PAGE}?step=2").text
    assert "already here; unchanged" in text and 'name="input.gpt-4o"' not in text
    boss_at_2.send(PAGE, step_2("free", chosen="gpt-4o"))
    boss_at_2.send(PAGE, [("row", "gpt-4o"), ("chosen", "gpt-4o"), ("do", "save_off")])
    assert show(db, "model", "gpt-4o")["price"]["input"] == "9"
    assert not show(db, "channel", "new")["enabled"]


def test_a_draft_is_given_up(boss_at_2):
    assert boss_at_2.send(PAGE, [("do", "cancel")]).place == "/admin/channels"
    assert (
        'aria-current="step"><span class="ring" aria-hidden="true">1'
        in boss_at_2.get(f"{PAGE}?step=3").text
    )
    assert boss_at_2.send(PAGE, step_2("free")).place == f"{PAGE}?step=1"

"""Home for administrators: its figures match the calls; what needs attention; its parts."""

import re
import threading

import pytest

from handlers.hub.home import overview
from store.channels.status import DOWN_CALLS
from store.db.database import database_ms
from store.db.tables.usage import UsageByRate
from store.money import wallet
from store.values.errors import StoreUnavailable
from store.values.ids import DAY_MS, day_at
from tests.handlers.hub.overview_world import book, call, edit, text_of

OVERVIEW = "/api/admin/overview"
FREE = {"cost_nanos": 0, "charges": ()}
SHORT = {"outcome": "refused", "error_code": "insufficient_quota", "attempts": (), **FREE}
MESSAGE = "The wallet balance does not cover this call: {} is left, and it needs at least {}. Add"


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Wait for all parts of the page, however busy the machine is."""
    monkeypatch.setattr(overview, "PATIENCE_S", 20)


@pytest.fixture
def channel(db, world, tmp_path):
    """Return channel(**fields), which changes the channel of the world."""

    def change(text):
        edit(db, tmp_path, f'[[channel]]\nname = "secret-account"\n{text}\n')

    return change


def test_before_the_first_call_the_set_up_leads(boss, api, world):
    text = text_of(boss.get("/"))
    assert re.search(r"Today, by .{1,40} 0 USD No call yet", text)
    assert text.index("Set-up") < text.index("Charged by day")
    assert "First call waits for it to do Show the command" in text and "Hide" not in text
    assert "Margin , 30 days – no cost is known" in text
    steps = {step["step"]: step["done"] for step in api.get(OVERVIEW).json["set_up"]}
    assert not any(steps.values()) and len(steps) == 8


def test_the_figures_are_those_of_the_calls(boss, api, db, channel):
    channel('cost_factor = "0.5"')
    nanos = {"upstream_nanos": 4 * 10**7}
    book(
        *(db, call(db, **nanos), call(db, ago_ms=3 * DAY_MS, **nanos), call(db, user="carol")),
        *(call(db, outcome="refused", error_code="rate_limit_exceeded", **FREE) for _ in range(2)),
        call(db, outcome="upstream_error", **FREE),
    )
    text = text_of(boss.get("/"))
    assert "30 days 0.30 USD 6 calls" in text
    assert "Margin , 30 days 60.00 % 0.12 USD cost known of 66.7 %" in text
    assert "Success , 30 days 50.00 % 1 failed 2 refused" in text
    seen = api.get(f"{OVERVIEW}?span=today&by=users").json
    spans = seen["spans"]
    assert (spans["30d"]["cost"], spans["today"]["cost"], spans["today"]["calls"]) == (
        "0.3",
        "0.2",
        5,
    )
    assert sum(hour["calls"] for hour in seen["charged"]) == 5 and len(seen["charged"]) == 24
    users = {row["user"]: row["cost"] for row in seen["charged_by"]["items"]}
    assert users == {"alice": "0.1", "carol": "0.1"} and seen["charged_by"]["others"] == 0
    [line] = seen["channels"]["items"]
    assert (line["name"], line["cost"], line["margin"]) == ("secret-account", "0.2", 0.6)


@pytest.mark.parametrize(
    ("by", "cell"),
    [
        ("models", r"gpt-5 .* 0\.20 .* 60\.0"),
        ("users", r"alice .* 0\.20 .* 60\.0"),
        ("channels", r"secret-account .* 0\.20 .* 60\.0"),
        ("keys", r"\bk .* 0\.20 .* 60\.0"),
    ],
)
def test_charges_are_told_apart(boss, db, world, by, cell):
    book(db, call(db, upstream_nanos=4 * 10**7), call(db))
    page = boss.get(f"/?by={by}")
    assert re.search(cell, text_of(page).partition("Margin, %")[2])
    assert boss.get("/?by=teams").status == 400


def test_refused_calls_for_money_come_first_until_the_wallet_has_enough(boss, alice, db, channel):
    book(db, *(call(db, outcome="upstream_error", **FREE) for _ in range(DOWN_CALLS)))
    left = wallet.show(db, "alice").balance_nanos - 61_200_000
    wallet.debit(db, "alice", wallet.Movement(left, "spent elsewhere"))
    short = MESSAGE.format("0.0612 USD", "0.143 USD")
    book(db, *(call(db, **SHORT, error_message=short) for _ in range(2)))
    looks = ((boss, "alice: 2", "Add money", " is down"), (alice, "2", "Wallet", "By model"))
    for browser, fact, link, after in looks:
        page = text_of(browser.get("/")).partition("Needs attention")[2]
        assert (
            f"{fact} calls refused for money 0.0612 USD left; a call needed at least 0.1430 USD"
            in page
        )
        assert page.index("refused for money") < page.index(link) < page.index(after)
    assert 'href="/wallet#redeem">Wallet' in alice.get("/").text
    [need, *_] = alice.get("/api/home").json["needs"]
    assert (need["need"], need["left"], need["calls"]) == ("money", "0.0612 USD", 2)
    wallet.credit(db, "alice", wallet.Movement(10**8, "gift"))
    for browser in (boss, alice):
        assert "refused for money" not in text_of(browser.get("/"))


def test_what_needs_an_administrator(boss, api, db, channel):
    book(
        *(db, call(db, model="gpt-5-mini", upstream_nanos=3 * 10**8)),
        call(db, model="gpt-5-mini", cost_nanos=5 * 10**8),
        *(call(db, outcome="upstream_error", **FREE) for _ in range(DOWN_CALLS)),
    )
    text = text_of(boss.get("/")).partition("Needs attention")[2]
    down = r"Channel secret-account is down Since .*: calls fail, model gpt-5. 3 of 5 calls fail"
    assert re.search(down, text)
    assert "Group coding charges less than it costs −0.20 USD in 30 days at ×0.8" in text
    assert "Channel secret-account has no cost 0.60 USD charged in 30 days" in text
    needs = [need["need"] for need in api.get(OVERVIEW).json["needs"]["items"]]
    assert needs[-2:] == ["group_loses", "cost"]
    channel('cost_factor = "0.5"')
    assert "has no cost" not in text_of(boss.get("/"))


def test_more_than_seven_needs_are_counted(boss, api, db, tmp_path):
    names = [f"member-{number}" for number in range(9)]
    edit(db, tmp_path, "".join(f'[[user]]\nname = "{name}"\n' for name in names))
    book(db, *(call(db, user=name, **SHORT) for name in names))
    assert "2 more" in text_of(boss.get("/"))
    needs = api.get(OVERVIEW).json["needs"]
    assert (len(needs["items"]), needs["more"]) == (7, 2)


def test_whose_home_it_is_stays(boss, alice, world):
    assert "Used without a price" in text_of(boss.get("/"))
    assert "Three steps to your first answer" in text_of(boss.get("/?of=me"))
    assert "Three steps to your first answer" in text_of(boss.get("/"))
    assert "Used without a price" in text_of(boss.get("/?of=gateway"))
    assert "Used without a price" in text_of(boss.get("/"))
    assert "Used without a price" not in text_of(alice.get("/?of=gateway"))


def test_the_set_up_hides(boss, db, world):
    book(db, call(db))
    page = boss.get("/")
    assert "Set-up" in text_of(page)
    boss.send("/preferences", [("set_up", "hidden")])
    assert "Set-up" not in text_of(boss.get("/"))


def test_a_part_that_fails_is_a_notice_in_its_place(boss, api, db, world, monkeypatch):
    def fail(db, by, since_ms):
        raise StoreUnavailable("gone")

    book(db, call(db))
    monkeypatch.setattr(overview, "load_charged", fail)
    text = text_of(boss.get("/"))
    assert re.search(
        r"The charges could not be read\. The rest of this page is current\. Id \w{26} Try", text
    )
    assert "30 days 0.10 USD" in text
    assert api.get(OVERVIEW).json["charged_by"] is None


def test_a_part_that_takes_long_is_bars_until_it_is_waited_for(boss, db, world, monkeypatch):
    book(db, call(db))
    go_on, charged = threading.Event(), overview.load_charged

    def wait(*args):
        go_on.wait(10)
        return charged(*args)

    monkeypatch.setattr(overview, "load_charged", wait)
    monkeypatch.setattr(overview, "PATIENCE_S", 2)
    page = boss.get("/")
    assert page.text.count("data-late") == 1 and "30 days 0.10 USD" in text_of(page)
    go_on.set()
    page = boss.get("/?wait=1")
    assert "data-late" not in page.text and "gpt-5 " in text_of(page)


def test_uses_without_a_price_have_the_list_price(boss, api, db, world, tmp_path):
    row = {"day": day_at(database_ms(db)), "model": "gpt-4.1", "rate": "", "meter": "web_search"}
    UsageByRate.insert({**row, "uses": 412, "calls": 1}).execute(db)
    edit(db, tmp_path, '[[model]]\nname = "gpt-4.1"\nprice = { input = "2", output = "8" }\n')
    text = text_of(boss.get("/")).partition("Used without a price")[2]
    assert "gpt-4.1 Web search 412 4.12 Set price" in text
    [use] = api.get(OVERVIEW).json["unpriced"]
    assert (use["model"], use["count"], use["cost"]) == ("gpt-4.1", 412, "4.12")

"""Payers of calls: plans, wallets, limits of keys and users, as records and commands show them.

Each test has users of its own. There is one worker, so that the remaining amounts are exact;
test_shared_wallet covers several workers.
"""

import contextlib
import datetime
import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from store.values.pricing import format_money, parse_money
from tests.support import coins, dialects
from tests.support.client import Connection, exchange, wait_until
from tests.support.wallets import Wallets, cost_of, joined, secret_of

ACTS_WITHIN_S = 3  # 2 are promised
CALLS_AT_ONCE = 8
TINY = "0.000001"  # less than any call in words costs

# ---- users ---------------------------------------------------------------------------------------

# order: payers of each call of one coin if plan and wallet both have 2.5, then what is left
ORDERS = {
    "plan_first": ([[coins.of_plan("plan_first")]] * 2 + [[coins.of_plan("plan_first", "0.5"),
                   ("wallet", "0.5")], [coins.WALLET], [coins.WALLET], "E18"], "0", "2.5"),
    "wallet_first": ([[coins.WALLET]] * 2 + [[("wallet", "0.5"), coins.of_plan("wallet_first",
        "0.5")],
                     [coins.of_plan("wallet_first")], [coins.of_plan("wallet_first")], "E18"],
                         "0", "2.5"),
    "plan_only": ([[coins.of_plan("plan_only")]] * 2 + ["E19", "E19"], "2.5", "2"),
    "wallet_only": ([[coins.WALLET]] * 2 + ["E18", "E18"], "0.5", "0"),
}  # fmt: skip
LACKING = "The {} does not cover this call{}: 0.5 USD is left, and it needs at least 1 USD."
# name: the message of the refusal
MESSAGES_OF_E19 = {
    "plan-week": LACKING.format("subscription quota", " until {week}"),
    "limit-day": LACKING.format("spend limit of this API key", " until {day}"),
    "limit-never": LACKING.format("spend limit of this API key", ""),
    "user-limit-day": LACKING.format("spend limit of this user", " until {day}"),
    "no-plan": "No subscription of this user is in force.",
}


def people():
    """Return all users of the tests below that exist from the start."""
    made = [
        coins.person(f"of-{order}", "2.5", order, {order: {"quota": "2.5"}}) for order in ORDERS
    ]
    made += [
        coins.person("plan-week", "10", "plan_only", {"half": {"quota": "0.5", "window": "week"}}),
        *(coins.person(f"limit-{w}", "10", limit="0.5", limit_window=w) for w in ("day", "never")),
        coins.person("user-limit-day", "10", user={"limit": "0.5", "limit_window": "day"}),
        coins.person("no-plan", "10", "plan_only"),
        coins.person("split", "10", plans={"split": {"quota": TINY}}),
        coins.person("nearly-empty", "0.0010"),
        coins.person("onlooker", "10", plans={"seen": {"quota": "2.5"}}, limit="4",
                     limit_window="never"),
        coins.person("removed", "10", plans={"removed": {}}, limit="5"),
        *(coins.person(name, plans=case.plans, **case.fields) for name, case in CHANGES.items()),
    ]  # fmt: skip
    return joined(*made)


class Change:
    """A user, a change of it, and who pays for the calls before and after the change."""

    def __init__(self, before, after, document, *, plan=None, **fields):
        self.before, self.after, self.document = before, after, document
        self.plans = {} if plan is None else {plan[0]: plan[1]}
        self.fields = {"balance": "10", **fields}


def key_of(name, **fields):
    return {"key": [{"user": name, "name": "main", **fields}]}


def plan_of(name, **fields):
    return {"plan": [{"name": name, **fields}]}


PLAN_ONLY = {"order": "plan_only"}
CHANGES = {
    "plan-off": Change([[coins.of_plan("off")]], [[coins.WALLET]], plan_of("off", enabled=False),
                       plan=("off", {"quota": "10"})),
    "subscribed": Change(
        ["E19"], [[coins.of_plan("begun")], "E19"],
        coins.subscription("subscribed", "begun", "1"), **PLAN_ONLY),
    "quota-raised": Change([[coins.of_plan("raised")], "E19"], [[coins.of_plan("raised")], "E19"],
                           plan_of("raised", quota="2"),
                           plan=("raised", {"quota": "1"}), **PLAN_ONLY),
    "limit-set": Change([[coins.WALLET]], [[coins.WALLET], "E19"], key_of("limit-set", limit="1")),
    "user-limit-set": Change([[coins.WALLET]], [[coins.WALLET], "E19"],
                             {"user": [{"name": "user-limit-set", "limit": "1"}]}),
    # Spending in windows of another kind does not count in the new windows.
    "limit-by-day": Change([[coins.WALLET], "E19"], [[coins.WALLET], "E19"],
                           key_of("limit-by-day", limit_window="day"), limit="1"),
}  # fmt: skip


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    return launch(joined(coins.base(vendor), people()), shared=False)


def spent(gateway):
    """Return what the subscriptions have spent, by user and plan."""
    listed = json.loads(gateway.run("subscription", "list", "--json"))
    return {f"{one['user']}/{one['plan']}": one["spent"] for one in listed}


def balance(gateway, name):
    with contextlib.closing(Wallets(gateway)) as wallets:
        return wallets.balance(name)


def at_once(work, items):
    """Return the results of `work` by item; several items are worked on at the same time."""
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        return dict(zip(items, pool.map(work, items), strict=True))


# ---- orders and splits ---------------------------------------------------------------------------


def test_the_orders_of_spending_are_kept(gateway):
    def pay(order):
        return [coins.paid(gateway, f"of-{order}") for _ in ORDERS[order][0]]

    assert at_once(pay, ORDERS) == {order: case[0] for order, case in ORDERS.items()}
    used = spent(gateway)
    for order, (_, left, of_quota) in ORDERS.items():
        assert balance(gateway, f"of-{order}") == left, order
        assert used[f"of-{order}/{order}"] == of_quota


def test_the_last_coins_of_a_plan_are_split_exactly_and_a_refund_gives_back_the_wallets(gateway):
    """The plan's part stays spent, because it is not money that could be paid out."""
    answer = coins.call(gateway, "split", dialects.MESSAGES, coins.WORDS, stream=True)
    assert answer.status == 200 and answer.whole
    record = gateway.record(answer.call_id)
    assert Decimal(record["cost"]) == cost_of(record) > Decimal(TINY)
    rest = format_money(parse_money(record["cost"]) - parse_money(TINY))
    assert coins.charges_of(record) == [coins.of_plan("split", TINY), ("wallet", rest)]
    assert spent(gateway)["split/split"] == TINY
    assert Decimal(balance(gateway, "split")) == 10 - Decimal(rest)
    for _ in range(2):
        gateway.run("wallet", "refund", "--call", record["id"])
    assert Decimal(balance(gateway, "split")) == 10
    assert spent(gateway)["split/split"] == TINY


# ---- subscriptions in force ----------------------------------------------------------------------


def test_a_subscription_begins_and_ends_on_time(gateway):
    """Nothing notifies the gateway, so the time of the call decides."""
    now = datetime.datetime.now(datetime.UTC)
    starts, ends = (now + datetime.timedelta(seconds=s) for s in (2, 3.5))
    term = {"starts_at": starts.isoformat(), "expires_at": ends.isoformat()}
    gateway.apply(
        coins.person("short-term", "1000", plans={"short-term": {"quota": "1000", **term}})
    )
    payers = []
    while datetime.datetime.now(datetime.UTC) < ends + datetime.timedelta(seconds=0.3):
        record = gateway.record(coins.call(gateway, "short-term").call_id)
        began = datetime.datetime.fromisoformat(record["started_at"])
        in_force = starts.replace(microsecond=starts.microsecond // 1000 * 1000) <= began < ends
        # Times are stored in milliseconds.
        if min(abs(began - starts), abs(began - ends)) > datetime.timedelta(milliseconds=2):
            expected = coins.of_plan("short-term") if in_force else coins.WALLET
            assert coins.charges_of(record) == [expected], record
            payers.append(expected)
    assert payers[-1] == coins.WALLET and coins.of_plan("short-term") in payers


# ---- changes while it runs -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def changed(gateway):
    """Return the payers of each user's calls before and after the change."""
    before = at_once(
        lambda name: [coins.paid(gateway, name) for _ in CHANGES[name].before], CHANGES
    )
    gateway.apply(joined(*(case.document for case in CHANGES.values())))
    time.sleep(ACTS_WITHIN_S)
    after = at_once(lambda name: [coins.paid(gateway, name) for _ in CHANGES[name].after], CHANGES)
    return before, after


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_acts_soon(changed, name):
    before, after = changed
    assert before[name] == CHANGES[name].before
    assert after[name] == CHANGES[name].after


def test_what_is_removed_while_its_call_runs_still_pays(gateway):
    path, headers = (
        dialects.path_of(dialects.CHAT, coins.COIN, True),
        dialects.credentials(dialects.CHAT, secret_of("removed")),
    )
    body = dialects.ask(dialects.CHAT, coins.COIN, "[[demo ms=100 chunks=30]]", stream=True)
    with Connection(gateway.port) as connection:
        connection.request("POST", path, headers, body)
        answer = connection.read_head()
        gateway.run("subscription", "remove", "removed/removed")
        gateway.apply(key_of("removed", limit=None, enabled=False))
        assert answer.call_id not in gateway.tail, "the call ended too early"
        connection.read_body(answer)
    assert coins.charges_of(gateway.record(answer.call_id)) == [coins.of_plan("removed")]
    dialects.check_refusal(coins.call(gateway, "removed"), dialects.CHAT, "E04")


# ---- refusals ------------------------------------------------------------------------------------


def next_days(record):
    """Return the days on which the windows of the record's time end."""
    day = datetime.datetime.fromisoformat(record["started_at"]).date()
    one = datetime.timedelta(1)
    return {"day": day + one, "week": day + one * (7 - day.weekday())}


@pytest.fixture(scope="module")
def refused(gateway, vendor):
    """Return the answers and records of calls that nobody can pay, and the vendor's requests."""
    families = dict(zip(MESSAGES_OF_E19, itertools.cycle(dialects.ALL)))

    def ask_for(name):
        stream = "day" in name
        answer = coins.call(gateway, name, families[name], stream=stream, prompt=f"Refused: {name}")
        return families[name], answer, gateway.record(answer.call_id)

    played = at_once(ask_for, MESSAGES_OF_E19)
    return played, [entry["body"] for entry in vendor.log()]


@pytest.mark.parametrize("name", MESSAGES_OF_E19)
def test_what_is_used_up_is_refused_and_not_relayed(refused, name):
    played, relayed = refused
    family, answer, record = played[name]
    message = dialects.check_refusal(answer, family, "E19")
    coins.check_free_refusal(record)
    assert (record["error_code"], record["status"]) == (
        dialects.REFUSALS["E19"].code,
        answer.status,
    )
    assert record["error_message"] == message
    assert message == MESSAGES_OF_E19[name].format(**next_days(record))
    assert not any("Refused: " in body for body in relayed)


def test_a_wallet_with_too_little_says_what_is_left_and_what_is_needed(gateway):
    answer = coins.call(gateway, "nearly-empty")
    message = dialects.check_refusal(answer, dialects.CHAT, "E18")
    assert message == (
        "The wallet balance does not cover this call: 0.001 USD is left, and it needs at least"
        " 1 USD. Add balance in the API Hub."
    )
    assert gateway.record(answer.call_id)["error_message"] == message


def test_a_key_sees_what_it_has_spent_and_what_is_left(gateway):
    def seen(path="/v1/usage"):
        headers = {"Authorization": f"Bearer {secret_of('onlooker')}"}
        answer = exchange(gateway.port, "GET", path, headers)
        assert answer.status == 200 and answer.call_id not in gateway.tail
        return answer.json

    for _ in range(3):
        assert coins.paid(gateway, "onlooker") != "E19"
    assert wait_until(lambda: seen()["spent"]["today"] == "3", ACTS_WITHIN_S)
    shown = seen("/v1/key")
    [limit] = shown["limits"]
    assert limit == {"limit": "key_spend", "allowed": "4", "left": "1", "resets_at": None}
    [plan] = shown["plans"]
    assert (plan["plan"], plan["left"], plan["state"]) == ("seen", "0", "used_up")
    assert (shown["balance"], shown["spent"]["month"]) == ("9.5", "3")
    assert shown["models"] == sorted([coins.COIN, coins.FREE, coins.WORDS])
    assert seen("/api/usage/token")["data"]["total_available"] == 500_000
    assert seen("/key/info")["info"]["spend"] == 3.0


# ---- the books -----------------------------------------------------------------------------------


def test_the_books_of_all_this_are_right(gateway):
    gateway.run("usage", "verify")
    gateway.run("books", "verify")

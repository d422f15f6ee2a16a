"""Objects as rows: what is stored, what is never stored, what is removed together."""

import pytest

from store.admin.objects import find, load
from store.db.schema import all_tables
from store.db.tables.catalog import ChannelKey, Price
from store.db.tables.money import LedgerLine, Wallet
from store.db.tables.users import KeySecret
from store.values.errors import NotFound, Refused
from store.values.ids import now_ms
from tests.support.stores import balances

pytestmark = pytest.mark.databases("sqlite")


def rows(database, table):
    return list(table.select().bind(database).dicts())


@pytest.fixture
def state(database, applied):
    return load(database)


def test_objects_are_read_with_their_fields(state, cipher, sealing):
    counts = dict.fromkeys(("model", "group", "channel", "user", "plan", "subscription", "key"), 2)
    counts |= {"plan": 0, "subscription": 0}
    assert {kind: len(objects) for kind, objects in state.items()} == counts
    channel = state["channel"][("openai-main",)]
    assert sealing.same("keys", channel.fields["keys"], ["sk-upstream-1", "sk-upstream-2"])
    assert not sealing.same("keys", channel.fields["keys"], ["sk-upstream-2", "sk-upstream-1"])
    key = state["key"][("alice", "laptop")]
    assert key.fields["group"] == "default" and not key.revoked
    assert sealing.same("secret", key.fields["secret"], "sk-given-0123456789")
    user = state["user"][("alice",)]
    assert "balance" not in user.fields
    assert sealing.same("password", user.fields["password"], "correct horse")
    price = {"input": 3 * 10**9, "output": 15 * 10**9, "call": 0}
    assert state["model"][("claude",)].fields["price"] == price


def test_find_tells_the_nearest_name(state):
    assert find(state, "user", "bob").identity == ("bob",)
    key = find(state, "key", "bob/desk")
    assert find(state, "key", key.id) is key
    with pytest.raises(NotFound, match='no user "bobby"; did you mean "bob"'):
        find(state, "user", "bobby")
    with pytest.raises(NotFound):
        find(state, "user", find(state, "user", "bob").id)


def test_no_secret_is_in_the_database(database, applied):
    text = repr([rows(database, table) for table in all_tables()])
    secrets = ["sk-upstream-1", "sk-given-0123456789", "correct horse", applied.keys[1].secret]
    assert [secret for secret in secrets if secret in text] == []


def test_a_user_has_a_wallet_and_its_opening_line(database, state):
    alice, bob = (state["user"][(name,)].id for name in ("alice", "bob"))
    assert balances(database) == {alice: 10 * 10**9, bob: 0}
    [line] = rows(database, LedgerLine)
    assert (line["user_id"], line["kind"], line["reason"]) == (alice, "credit", "opening balance")
    assert line["amount"] == line["balance_after"] == 10 * 10**9
    assert abs(line["at_ms"] - now_ms()) < 3_600_000  # applied once for all tests


def test_changed_prices_are_added_never_altered(database, editor, state):
    model_id = state["model"][("claude",)].id
    for price in ("4", "5", "6"):
        editor.change("model", "claude", {"price.input": price})
    prices = [row for row in rows(database, Price) if row["model_id"] == model_id]
    prices.sort(key=lambda row: row["effective_ms"])
    assert [row["input"] for row in prices] == [n * 10**9 for n in (3, 4, 5, 6)]
    assert {row["output"] for row in prices} == {15 * 10**9}
    assert {row["cache_read"] for row in prices} == {None}
    assert len({row["effective_ms"] for row in prices}) == 4


def test_what_goes_with_an_object_and_what_stays(database, editor, state):
    editor.remove("key", "alice/laptop")
    assert len(rows(database, KeySecret)) == 1
    editor.remove("user", "alice")
    assert len(rows(database, Wallet)) == 2
    assert len(rows(database, LedgerLine)) == 1
    editor.remove("channel", "openai-main")
    assert len(rows(database, ChannelKey)) == 1
    editor.remove("channel", "anthropic-main")
    editor.remove("model", "claude")
    assert len(rows(database, Price)) == 1


def test_plans_and_subscriptions_are_kept(database, editor, applied):
    before = now_ms()
    editor.create("plan", "monthly", {"quota": "20", "window": "month"})
    editor.create("subscription", "alice/monthly", {})
    state = load(database)
    plan, subscription = (
        find(state, *it) for it in (("plan", "monthly"), ("subscription", "alice/monthly"))
    )
    assert plan.fields == {"quota": 20 * 10**9, "window": "month", "days": 30, "enabled": True}
    starts_ms = subscription.fields["starts_at"]
    assert before <= starts_ms <= now_ms()
    assert subscription.fields["expires_at"] == starts_ms + 30 * 86_400_000
    assert subscription.row["user_id"] == find(state, "user", "alice").id
    assert subscription.row["plan_id"] == plan.id
    assert min(plan.row["created_ms"], subscription.row["created_ms"]) >= before
    assert find(state, "subscription", subscription.id) is subscription
    with pytest.raises(NotFound, match='did you mean "alice/monthly"'):
        find(state, "subscription", "alice/montly")


def test_names_that_read_alike_need_the_id(database, editor, applied):
    made = {}
    for user, name in (("alice", "x/y"), ("alice/x", "y")):
        if user != "alice":
            editor.create("user", user, {})
        [made[user]] = editor.create("key", name, {"user": user}).keys
    state = load(database)
    with pytest.raises(Refused, match="use the id"):
        find(state, "key", "alice/x/y")
    assert find(state, "key", made["alice"].id).identity == ("alice", "x/y")


def test_what_matters_to_the_keys_of_one_user(database, applied):
    whole = load(database)
    alice = whole["user"]["alice",]
    own = load(database, alice.id)
    assert own["user"] == {("alice",): alice}
    assert own["key"] == {("alice", "laptop"): whole["key"]["alice", "laptop"]}
    for kind in ("model", "group", "channel", "plan"):
        assert own[kind] == whole[kind]

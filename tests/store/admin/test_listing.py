"""Pages of lists, and prices over time."""

import pytest

from store.admin import listing
from store.admin.export import list_objects
from store.admin.listing import Paging, key_id_of, require_name
from store.values.errors import NotFound
from tests.support.usage_records import NOW_MS, record, store

KINDS = ("model", "group", "channel", "user", "plan", "subscription")


@pytest.fixture
def filled(database, applied, editor):
    editor.create("plan", "monthly", {"quota": "20", "window": "month"})
    for user in ("alice", "bob"):
        editor.create("subscription", f"{user}/monthly", {})
    return database


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("kind", KINDS)
def test_pages_together_are_the_whole_list(filled, kind):
    seen, after = [], ""
    while after is not None:
        part = listing.list_page(filled, kind, Paging(1, after))
        seen += part.items
        after = part.next
    assert seen == sorted(list_objects(filled, kind), key=lambda one: one.get("name", one["id"]))
    for one in seen:
        name = one.get("name") or f"{one['user']}/{one['plan']}"
        assert listing.show_one(filled, kind, name) == one


@pytest.mark.parametrize(
    ("search", "names"),
    [
        *(("MAIN", ["anthropic-main", "openai-main"]), ("%", []), ("main%", [])),
        *(("GPT-4.1", ["openai-main"]), ("own-name", ["openai-main"]), ("own_name", [])),
        *(("Proxy.example", ["anthropic-main"]), ("https", ["anthropic-main", "openai-main"])),
    ],
)
def test_channels_are_found_by_name_models_and_base_url(filled, editor, search, names):
    editor.change("channel", "openai-main", {"models.gpt-4.1": "Own-Name-2025"})
    editor.change("channel", "anthropic-main", {"base_url": "https://proxy.example.com"})
    page = listing.list_page(filled, "channel", Paging(10, search=search))
    assert [channel["name"] for channel in page.items] == names


def test_an_unknown_name_is_told_the_nearest(filled):
    with pytest.raises(NotFound, match="openai-main"):
        listing.show_one(filled, "channel", "openai-mian")


@pytest.mark.databases("sqlite")
def test_the_history_of_prices_has_the_newest_first(filled, editor):
    editor.change("model", "gpt-4.1", {"price.input": "1"})
    new, old = listing.price_history(filled, "gpt-4.1")
    assert (new["input"], old["input"]) == ("1", "2")
    assert new["output"] == old["output"] == "8" and new["effective_at"] > old["effective_at"]
    assert new["cache_write"] is None
    with pytest.raises(NotFound):
        listing.price_history(filled, "nothing")


def test_names_that_only_the_sums_remember_exist(database):
    for kind in ("user", "group", "channel"):
        with pytest.raises(NotFound, match=f'no {kind} "g"'):
            require_name(database, kind, "g")
    with pytest.raises(NotFound):
        key_id_of(database, "k")
    store(database, [record(1, NOW_MS, channel="main")])
    require_name(database, "user", "alice")
    require_name(database, "channel", "main")
    assert key_id_of(database, "k") == "k"

"""The entries through which channels can be called, natively and translated."""

from store.catalog.catalog import Group
from store.channels.serving import Entries

CHAT, RESPONSES, MESSAGES = "chat_completions", "responses", "messages"
LOSSES = {(CHAT, MESSAGES): 2, (RESPONSES, MESSAGES): 1, (MESSAGES, CHAT): 1}


def group(name, *entries, models=None, translate=True):
    return Group(name, 10**6, models, frozenset(entries), False, translate=translate)


def of(*groups, names=None, model="m", family=MESSAGES, translate=True):
    names = frozenset(one.name for one in groups) if names is None else names
    return Entries(groups, LOSSES).of(family, names, model, translate=translate)


def test_the_native_entry_comes_first_then_those_that_are_translated():
    found = of(group("g", CHAT, RESPONSES, MESSAGES, "generate_content"))
    translated = "translated from messages"
    assert list(found.items()) == [
        (MESSAGES, "native"),
        (CHAT, translated),
        (RESPONSES, translated),
    ]
    assert of(group("g", CHAT)) == {CHAT: translated}
    assert of(group("g", RESPONSES), family=CHAT) == {}


def test_group_and_channel_can_forbid_it():
    open_group = group("g", CHAT, MESSAGES)
    assert of(open_group, translate=False) == {MESSAGES: "native"}
    closed = group("h", RESPONSES, MESSAGES, translate=False)
    assert of(closed) == {MESSAGES: "native"}
    assert set(of(open_group, closed)) == {MESSAGES, CHAT}


def test_only_groups_of_the_channel_that_may_use_the_model_count():
    narrow, wide = group("narrow", CHAT, models=frozenset({"other"})), group("wide", MESSAGES)
    assert of(narrow, wide) == {MESSAGES: "native"}
    assert set(of(narrow, wide, model="other")) == {MESSAGES, CHAT}
    assert of(narrow, wide, names=frozenset({"gone"})) == {}

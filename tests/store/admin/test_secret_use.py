"""Sealing anew with a newer cipher key: complete, resumable, without changes of the sealed
values."""

import pytest

from store.admin.secret_use import reseal, sealed_use
from store.catalog.catalog import load_snapshot
from store.db import audit
from store.values.cipher import Cipher

pytestmark = pytest.mark.databases("sqlite")

CHANNELS = 45
OLD = "cipher key of the tests"
EXTRA = """
[[channel]]
name = "c{number}"
vendor = "openai"
family = "chat_completions"
base_url = "https://api.openai.com"
keys = ["sk-{number}-a", "sk-{number}-b"]
extra_headers = {{ X-Org = "org-{number}" }}
proxy = "http://user:word-{number}@proxy.example:3128"
models = {{ "gpt-4.1" = "gpt-4.1" }}
"""


@pytest.fixture
def many(applied, editor, read, base_document):
    text = "".join(EXTRA.format(number=number) for number in range(CHANNELS))
    editor.apply(read(base_document + text))


BOTH = Cipher(["newer", OLD])


def anew(database, cipher=BOTH, report=lambda *_: None):
    return reseal(database, cipher, "tester", report)


def opened(snapshot):
    return {
        channel.name: (channel.keys, dict(channel.extra_headers), channel.route)
        for channel in snapshot.channels
    }


def test_everything_is_sealed_anew(many, database, editor, read, base_document):
    before, names = load_snapshot(database, BOTH), sealed_use(database, BOTH)
    assert names.newest == 0 and names.older >= CHANNELS * 4 and names.unreadable == 0
    steps = []
    done = anew(database, report=lambda *step: steps.append(step))
    assert done == names.older
    assert steps[-1][0] == steps[-1][1] and len(steps) > 2
    assert sealed_use(database, BOTH) == type(names)(done, 0, 0)
    alone = load_snapshot(database, Cipher(["newer"]))
    assert opened(alone) == opened(before) and not alone.faults
    # fingerprints of keys stay the same
    assert [c.fingerprints for c in alone.channels] == [c.fingerprints for c in before.channels]
    assert audit.entries(database, 1)[0]["action"] == "reseal"
    assert anew(database) == 0


def test_what_no_key_opens_stays(many, database):
    stranger = Cipher(["stranger"])
    assert sealed_use(database, stranger).unreadable >= CHANNELS * 4
    assert anew(database, stranger) == 0


def test_the_same_keys_again_change_nothing(many, database, editor, read, base_document):
    marks = [one.fingerprints for one in load_snapshot(database, BOTH).channels]
    anew(database)
    editor._sealing.cipher = Cipher(["newer"])
    text = base_document + "".join(EXTRA.format(number=number) for number in range(CHANNELS))
    assert editor.apply(read(text)).changes == []
    # an unchanged key keeps its fingerprint beside a new one
    editor.apply(read(text.replace('"sk-0-b"', '"sk-0-c"')))
    after = load_snapshot(database, Cipher(["newer"])).channels
    [(old, new)] = [
        (before, channel.fingerprints)
        for before, channel in zip(marks, after, strict=True)
        if before != channel.fingerprints
    ]
    assert old[0] == new[0] and old[1] != new[1]

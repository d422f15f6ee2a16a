"""The models: values are read as they were written. (For columns see test_schema.)"""

from store.db.tables.catalog import Channel
from store.db.tables.users import KeySecret


def test_json_and_flags_come_back(database):
    row = {"id": "i", "name": 'né"\\', "vendor": "v", "family": "f", "base_url": "u"}
    row |= {"groups": ["ä", "b"], "models": {"a": "😀"}, "enabled": False}
    Channel.insert(row).execute(database)
    [back] = Channel.select().bind(database).dicts()
    assert {name: back[name] for name in row} == row
    assert back["enabled"] is False
    assert (back["priority"], back["weight"], back["rpm"]) == (0, 1, 0)


def test_digests_are_bytes(database):
    digest = bytes(range(224, 256))
    row = {"digest": digest, "key_id": "k", "pepper_id": "p"}
    KeySecret.insert(row).execute(database)
    [back] = KeySecret.select().bind(database).dicts()
    assert bytes(back["digest"]) == digest
    assert back["valid_until_ms"] is None

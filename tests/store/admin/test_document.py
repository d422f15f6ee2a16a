"""Reading of documents: both syntaxes, every fault at once, values from files and the
environment."""

import json

import pytest

from store.admin.document import Entry, label
from store.admin.export import to_toml
from store.values.errors import Refused


@pytest.fixture
def faults(read):
    def run(text, **environ):
        with pytest.raises(Refused) as caught:
            read(text, **environ)
        return caught.value.faults

    return run


def test_entries_come_in_the_order_of_their_kinds(read, base_document):
    entries = read(base_document)
    kinds = [kind for kind in ("model", "group", "channel", "user", "key") for _ in range(2)]
    assert [entry.kind for entry in entries] == kinds
    price = {"call": 0, "input": 2 * 10**9, "output": 8 * 10**9, "cache_read": 5 * 10**8}
    assert (entries[0].identity, entries[0].fields["price"]) == (("gpt-4.1",), price)
    assert entries[-1] == Entry("key", ("bob", "desk"), {"group": "plain"})
    assert label("key", ("bob", "desk")) == 'key "bob/desk"'
    for secret in ("sk-upstream", "correct horse", "sk-given"):
        assert secret not in repr(entries)


def test_toml_and_json_say_the_same(read):
    toml = '[[user]]\nname = "a"\nbalance = 1.10\n[[group]]\nname = "g"\nrpm = 5'
    plain = {"user": [{"name": "a", "balance": 1.10}], "group": [{"name": "g", "rpm": 5}]}
    assert read(toml) == read("\n " + json.dumps(plain)) == read("\ufeff" + json.dumps(plain))
    assert read("") == read("{}") == read("# only a remark") == []


def test_all_faults_at_once_with_the_nearest_name(faults):
    document = {
        "groop": [{"name": "x"}],
        "channel": [
            {"name": "c", "weigth": 1, "family": "message", "base_url": "https://x"}
            | {"keys": ["with space"]}
        ],
        "user": [{"role": "admin"}, {"name": "a", "balance": "ten"}, {"name": "a"}],
        "plan": [{"name": "monthly", "quota": "0", "window": "never"}],
        "subscription": [{"user": "a"}],
        "key": [{"user": "a", "name": 5}],
    }
    found = faults(to_toml(document))
    text = "\n".join(found)
    for message in (
        'unknown section "groop"; did you mean "group"?',
        'channel "c": unknown field "weigth"; did you mean "weight"?',
        'did you mean "messages"?',
        "keys: element 1 must have",
        "user #1: name is missing",
        "user \"a\": balance: 'ten' is no amount",
        'user "a" is there more than once',
        'plan "monthly": quota: must be more than 0',
        'plan "monthly": window: must be one of day, week, month',
        "subscription #1: plan is missing",
        "key #1: name: must be a string",
    ):
        assert message in text
    assert "with space" not in text and len(found) == 11


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a = ", "not TOML"),
        ("[[user]]\nname = 'a'\nname = 'b'", 'line 3: the key "name" is there twice'),
        ("[[model]]\n[model.price]\n[model.price]\n", "line 3: the table [model.price] is there"),
        ("{", "not JSON"),
        ('{"user": [], "user": []}', '"user" is there twice'),
        ('{"user": [{"name": "a", "role": "admin", "role": "member"}]}', '"role" is there twice'),
        ('{"a":' * 100_000, "not JSON"),
        ('{"user": [{"name": "a", "balance": 1' + "0" * 5000 + "}]}", "not JSON"),
        ('{"user": {"name": "a"}}', "[[user]]"),
        ('{"user": ["a"]}', "user #1 must be a table"),
        ('{"user": [{"name": null}]}', "must be a string"),
        ('{"user": [{"name": "\\ud800"}]}', "printable"),
    ],
)
def test_broken_documents(faults, text, hint):
    assert hint in "\n".join(faults(text))


def test_a_document_has_a_largest_size(faults, monkeypatch):
    monkeypatch.setattr("store.admin.document.MAX_DOCUMENT_CHARS", 10)
    assert "more than 10" in faults("#" * 11)[0]


def test_values_from_environment_and_files(read, tmp_path):
    (tmp_path / "key").write_text("sk-from-file\r\n")
    text = """
    [[channel]]
    name = "c"
    keys = ["env:KEY", "file:key", "plain"]
    models = { m = "env:UP" }
    """
    [entry] = read(text, KEY="sk-from-env", UP="up-name")
    assert entry.fields["keys"] == ["sk-from-env", "sk-from-file", "plain"]
    assert entry.fields["models"] == {"m": "up-name"}


def test_values_that_cannot_be_read(faults, tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "large").write_bytes(b"x" * 65_537)
    for value, hint in (
        ("env:MISSING", "no variable MISSING"),
        ("file:none", "cannot be read"),
        ("file:binary", "not UTF-8"),
        ("file:large", "65536"),
    ):
        [fault] = faults(f'[[user]]\nname = "a"\npassword = "{value}"')
        assert fault.startswith('user "a": password: ') and hint in fault


def test_a_time_may_be_written_as_toml_has_them(read):
    [entry] = read('[[key]]\nuser = "a"\nname = "k"\nexpires_at = 2027-01-01T00:00:00Z')
    assert entry.fields["expires_at"] == 1_798_761_600_000

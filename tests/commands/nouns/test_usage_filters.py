"""What filters name must exist: a mistyped name is no empty table."""

import pytest

from adapters.faults import CODES
from commands.nouns.usage_filters import ERROR_CODES
from handlers.relay import records
from store.calls.journal_lines import LOST_OUTCOME
from tests.commands.conftest import record

VERBS = ("tail", "export", "stats")


UNKNOWN = [
    ("--user", "alicia", 'there is no user "alicia"; did you mean "alice"?'),
    ("--user", "x", 'there is no user "x"\n'),
    ("--group", "defualt", 'there is no group "defualt"; did you mean "default"?'),
    ("--channel", "mian", 'there is no channel "mian"; did you mean "main"?'),
    ("--key-id", "alice/labtop", 'there is no key "alice/labtop"; did you mean "alice/laptop"'),
    ("--key-id", "01ABC", 'there is no key "01ABC"; write USER/NAME or an id'),
    ("--outcome", "upstream-error", 'there is no outcome "upstream-error"; did you mean'),
    ("--outcome", "x", "there are: ok, refused"),
    ("--error-code", "insuficient_quota", 'did you mean "insufficient_quota"?'),
]
KNOWN = ["--user=alice", "--group=default", "--channel=main", "--key-id=alice/laptop"]
KNOWN += ["--outcome=drained", "--error-code=gateway_lost"]


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_filter_names_must_exist(filled, verb):
    for option, value, problem in UNKNOWN:
        assert problem in filled.refused("usage", verb, option, value)
    span = ("--since", "2026-11-02", "--until", "2026-11-01")
    assert "--since must be before --until" in filled.misused("usage", verb, *span)
    for option in KNOWN:  # and may have no calls
        assert filled.json("usage", verb, option, "--since=1h") == []


def test_a_key_is_named_as_key_show_names_it(filled):
    [key] = filled.json("key", "list")
    made = record(1, key_id=key["id"])
    filled.write_records(made, record(2))
    for name in ("alice/laptop", key["id"]):
        [found] = filled.json("usage", "tail", "--key-id", name)
        assert found["id"] == made.id


def test_what_was_removed_is_still_found(filled):
    filled.write_records(record(1, user="gone", key_id="old-key", channel="away"))
    for option in ("--user=gone", "--key-id=old-key", "--channel=away"):
        [found] = filled.json("usage", "tail", option)
        assert found["user"] == "gone"


def test_what_no_index_knows_is_looked_for_in_the_last_days(filled):
    filled.write_records(record(1, status=500, error_code="internal_error"))
    text = filled.run("usage", "tail", "--status=500", "--until", "2026-12-24").err
    assert "begun since 2026-12-17T00:00:00.000Z; for older ones: --since" in text
    assert filled.run("usage", "tail", "--status=500", "--since", "2026-11-18").err == ""
    for option in ("--user=alice", "--model=gpt-4.1", "--outcome=ok", "--request-id=x",
                   "--error-code=internal_error", "--endpoint=/v1/messages", "--group=default",
                   "--client-request-id=x"):  # fmt: skip
        assert filled.run("usage", "tail", option).err == ""


def test_every_code_that_a_record_may_have_is_known():
    assert {*CODES.values(), *records._WORDS, LOST_OUTCOME} == set(ERROR_CODES)

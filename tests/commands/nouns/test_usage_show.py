"""`usage show`: one call, found by any of its ids."""

import json

import pytest

from adapters.upstream_errors.read import QUOTA_USED
from store.values.ids import now_ms, ulid
from store.values.usage import Served, Usage
from store.values.usage_record import FIELDS, AttemptRecord, OtherCost, Receipt
from tests.commands.conftest import record
from tests.support.usage_records import field_of

MINUTE_MS = 60_000


def recent(number, minutes_ago=5, **fields):
    """Return the record of a call of today, whatever day the test runs."""
    at_ms = now_ms() - minutes_ago * MINUTE_MS
    return record(number, id=ulid(at_ms, number.to_bytes(10)), started_ms=at_ms, **fields)


@pytest.fixture
def failed(installation):
    """Write a call that failed at two channels before a third answered, and one that was
    refused."""
    attempts = (
        AttemptRecord("first", None, "connect", 12, "Connection refused: Failed to connect to ***"),
        AttemptRecord("second", 429, "channel_misconfigured", 34, f"{QUOTA_USED}: \x1b[2J"),
        AttemptRecord("main", 200, None, 900),
    )
    made = recent(
        1,
        attempts=attempts,
        **{"client_request_id": "mine-1", "upstream_request_id": "chatcmpl-9"},
        **{"cache_read_tokens": 3, "ttft_ms": 400, "duration_ms": 950},
        **{"upstream_model": "up-gpt", "multiplier_ppm": 1_500_000},
        reported_usage='{"prompt_tokens":7}',
    )
    made.cost_nanos, made.charges = 30, made.charges
    refused = recent(2, outcome="refused", status=404, error_code="model_not_found", prices=None,
                     error_message="Model 'x' is not available.", usage_source="none",
                     channel=None, attempts=())  # fmt: skip
    installation.write_records(made, refused)
    return made, refused


@pytest.mark.parametrize("which", ["id", "client_request_id", "upstream_request_id"])
def test_a_call_is_found_by_each_of_its_ids(installation, failed, which):
    found = installation.json("usage", "show", field_of(failed[0], which))
    assert list(found) == [*FIELDS, "cost_lines", "refunds"]
    assert found["id"] == failed[0].id
    assert found["attempts"][0]["detail"].startswith("Connection refused")


def test_the_text_says_what_happened_and_what_it_cost(installation, failed):
    text = installation.ok("usage", "show", failed[0].id)
    lines = [line.split() for line in text.splitlines()]
    assert lines[0] == ["call", failed[0].id]
    for words in (
        "took 950 ms, first byte after 400 ms",
        "key key-1, laptop",
        "requested /v1/chat/completions, model gpt-4.1, not streamed",
        "channel main, up-gpt",
        "outcome ok, 200",
        "client's id mine-1",
        "vendor's id chatcmpl-9",
        "channel status ms error detail",
        "first - 12 connect Connection refused: Failed to connect to ***",
        "second 429 34 channel_misconfigured the vendor's quota is used up: �[2J",
        "main 200 900 - -",
        "cost (USD)",
        "input 1000 0.000002 0.000000002",
        "output 500 0.000008 0.000000004",
        "× multiplier 1.5, rounded up = 0.00000003",
        'the vendor reported: {"prompt_tokens":7}',
    ):
        assert words.split() in lines, (words, text)
    assert "\x1b" not in text and "error  " not in text.split("attempts")[0]


def test_the_text_has_the_rate_what_was_served_and_what_had_no_price(installation):
    receipt = Receipt(
        rate="*0.5 input=2 output=8 audio_second=0.001 ?tier=flex ?input_over=50",
        served=Served(tier="flex", geo="us"),
        unpriced=(("web_fetch", 2), ("geo", 1)),
        other_models=(OtherCost("helper", Usage(823, 1612), "0.0444"),),
    )
    made = recent(1, more=(("web_fetch", 2), ("audio_second", 12_345)), receipt=receipt)
    installation.write_records(made)
    lines = [line.split() for line in installation.ok("usage", "show", made.id).splitlines()]
    for words in (
        "served tier flex, geo us",
        "rate tier flex, input_over 50",
        "no price web_fetch 2, geo 1",
        "others helper (input 823, output 1612)",
        "input 1000 1 0.001",
        "web_fetch 2 0 0",
        "audio_second 12.345 0.001 0.012345",
        "helper 2435 - 0.0444",
    ):
        assert words.split() in lines, (words, lines)


def test_a_call_that_was_refused_cost_nothing(installation, failed):
    text = installation.ok("usage", "show", failed[1].id)
    assert "error        model_not_found: Model 'x' is not available." in text
    assert "nothing was charged (usage: none)" in text and "attempts" not in text


def test_the_newest_of_several_calls_is_shown_and_the_others_are_named(installation):
    made = [recent(n, minutes_ago=n * 9 * 24 * 60, client_request_id="same") for n in (1, 2, 3)]
    installation.write_records(*made, recent(9))
    ended = installation.run("usage", "show", "same", "--json")
    assert json.loads(ended.out)["id"] == made[0].id
    assert "the newest of 3 calls" in ended.err
    named = [line.split()[0] for line in ended.err.splitlines()[1:]]
    assert named == [made[1].id, made[2].id]
    assert "--since" in installation.refused("usage", "show", "same", "--since", "8d")


def test_an_id_that_nothing_has_ends_with_1_and_says_where_was_looked(installation):
    text = installation.refused("usage", "show", "chatcmpl-none")
    assert 'no record has the id "chatcmpl-none"' in text
    assert "--since" not in text and "log" in text

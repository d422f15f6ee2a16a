"""The caller's own text is removed from a vendor's messages."""

import json

import pytest

from adapters.upstream_errors.echo import BODY_MAX_BYTES, without_echo

PROMPT = 'Sing of seventeen zebras,\nin "Zanzibar" – password hunter2017, über Straßenbahnen.'


def body(prompt=PROMPT, **more):
    return json.dumps({"messages": [{"content": [{"text": prompt}]}], **more}).encode()


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("Rate limit reached for requests", "Rate limit reached for requests"),
        ("bad: 'Sing of seventeen zebras, in Zanzibar'!", "bad: '***'!"),
        ("zebras in zanzibar and zebras", "*** and zebras"),
        ("do not say hunter2017 twice", "do not say *** twice"),
        ("über Straßenbahnen", "über ***"),
        ("'messages' is wrong", "'messages' is wrong"),
        ("", ""),
    ],
)
def test_what_the_request_says_is_masked(said, left):
    assert without_echo(said, body()) == left


def test_names_of_fields_and_of_the_model_stay():
    asked = body(model="gpt-4.1-mini-2026", max_completion_tokens=5)
    said = "Unknown parameter max_completion_tokens; the model gpt-4.1-mini-2026 is gone"
    assert without_echo(said, asked, ("gpt-4.1-mini-2026",)) == said
    assert "mini" not in without_echo(said, asked)


def test_nothing_is_told_when_the_request_cannot_be_looked_through():
    assert without_echo("words", b"x" * (BODY_MAX_BYTES + 1)) is None
    assert without_echo("words", b"{no json") is None
    assert without_echo("words", b"") == "words"
    deep = b"[" * 20_000 + b"]" * 20_000
    assert without_echo("words", deep) is None

"""Opaque state returns to its maker, and nobody can forge its origin."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.family.opaque import PREFIX, Origin, mark_of, unwrap, wrap
from adapters.ir.parts import Reasoning, Text, Turn
from adapters.ir.request import Request
from adapters.translate import has_opaque, restore_opaque, without_opaque

ORIGIN = Origin("messages", mark_of("channel-1", "f1"), b"k" * 32, "user")


def test_what_was_wrapped_comes_back():
    for value in ("", "s3cret", "Zm9v/+=", "é\U0001f600", "x" * 100_000):
        text = wrap(value, ORIGIN)
        assert text.startswith(PREFIX) and text.isascii() and not set(text) & set(' "\\')
        assert unwrap(text, ORIGIN) == value


def test_halves_of_characters_harm_nothing():
    assert unwrap(wrap("a\ud800b", ORIGIN), ORIGIN) == "a?b"


@pytest.mark.parametrize(
    "other",
    [
        Origin("responses", ORIGIN.mark, ORIGIN.secret, "user"),
        Origin("messages", mark_of("channel-2", "f1"), ORIGIN.secret, "user"),
        Origin("messages", mark_of("channel-1", "f2"), ORIGIN.secret, "user"),
        Origin("messages", ORIGIN.mark, b"z" * 32, "user"),
        Origin("messages", ORIGIN.mark, ORIGIN.secret, "other user"),
    ],
)
def test_another_origin_has_no_use_for_it(other):
    assert unwrap(wrap("s3cret", ORIGIN), other) is None


def test_an_older_secret_is_taken_and_does_not_sign():
    before = wrap("s3cret", ORIGIN)
    now = Origin(ORIGIN.family, ORIGIN.mark, b"n" * 32, "user", (b"m" * 32, ORIGIN.secret))
    assert unwrap(before, now) == "s3cret"
    assert wrap("s3cret", now) != before and unwrap(wrap("s3cret", now), ORIGIN) is None


def test_every_part_is_signed():
    text = wrap("s3cret", ORIGIN)
    for at in range(len(text)):
        forged = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        assert unwrap(forged, ORIGIN) is None
    head, mac = text.rsplit(".", 1)
    other = base64.urlsafe_b64encode(b"other").rstrip(b"=").decode()
    assert unwrap(f"{head.rsplit('.', 1)[0]}.{other}.{mac}", ORIGIN) is None


@settings(max_examples=200, deadline=None)
@given(st.text() | st.text("gw1.messages_-=A", max_size=80).map(PREFIX.__add__))
def test_whatever_a_client_sends_is_read_without_an_error(text):
    assert unwrap(text, ORIGIN) is None


def test_a_mark_tells_upstream_keys_apart_and_shows_none():
    marks = {mark_of(a, b) for a in ("c", "cc") for b in ("", "f", "c/f")}
    assert len(marks) == 6 and all(len(mark) == 16 for mark in marks)


OTHER = Origin("responses", "mark", b"k" * 32, "user")


def request(*parts, role="assistant"):
    return Request("chat_completions", False, (Turn("user", (Text("Who?"),)), Turn(role, parts)))


def test_own_state_is_unwrapped_and_any_other_goes():
    own, other = wrap("own", ORIGIN), wrap("other", OTHER)
    thoughts = [Reasoning("hm", opaque=one) for one in (own, other, "native", "")]
    for role in ("assistant", "user"):
        _, turn = restore_opaque(request(*thoughts, Text("Me."), role=role), ORIGIN).turns
        assert [part.opaque for part in turn.parts[:-1]] == ["own", "", "", ""]
        assert [part.text for part in turn.parts] == ["hm"] * 4 + ["Me."]


def test_a_turn_without_state_is_the_same_object():
    asked = request(Reasoning("hm"), Text("Me."))
    assert restore_opaque(asked, ORIGIN).turns[1] is asked.turns[1]
    assert without_opaque(asked).turns[1] is asked.turns[1]


def test_all_state_can_be_left_out():
    asked = request(Reasoning("hm", opaque="s"), Text("Me."))
    assert has_opaque(asked) and not has_opaque(without_opaque(asked))
    assert without_opaque(asked).turns[1].parts == (Reasoning("hm"), Text("Me."))

"""Thoughts come back to their maker byte for byte."""

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.messages.parts import sealed_data, sealed_thought, thought_of

ANY = st.text(st.characters())  # also halves of characters, which vendors have sent


@given(ANY, ANY)
@settings(max_examples=100, deadline=None)
def test_every_thought_comes_back(thinking, signature):
    assert thought_of(sealed_thought(thinking, signature)) == {
        "type": "thinking",
        "thinking": thinking,
        "signature": signature,
    }
    assert thought_of(sealed_data(signature)) == {"type": "redacted_thinking", "data": signature}


def test_what_is_no_thought():
    for odd in ("", "c2ln", "7", "[]", "{}", '{"type":"text"}', '{"type":"thinking"}', "\ud800"):
        assert thought_of(odd) is None
    assert thought_of('{"type":"redacted_thinking","data":7}') is None

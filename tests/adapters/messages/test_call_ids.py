"""Ids of tool calls, as the messages family takes them and back."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.messages.parts import fit_id, original_id


def test_fit_ids_stay():
    assert fit_id("toolu_01A-b") == original_id("toolu_01A-b") == "toolu_01A-b"


def test_what_only_looks_like_ours_stays():
    for odd in ("gw_", "gw_!", "gw_AB", "gw_dG9vbA", "gw__w"):
        assert original_id(odd) == odd


@given(st.text(min_size=1))
@settings(max_examples=200, deadline=None)
def test_every_id_comes_back(call_id):
    fit = fit_id(call_id)
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", fit)
    assert original_id(fit) == call_id

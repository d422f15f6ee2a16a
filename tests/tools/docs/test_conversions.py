"""docs/conversions.md describes everything that the codecs do."""

from typing import get_args

import pytest

from adapters.codecs import CODECS
from adapters.family.traits import Traits
from adapters.ir.request import Feature
from adapters.registry import FAMILY_NAMES
from tests.translation.cases import CASES as TRIED
from tools.docs import conversions
from tools.docs.conversion_words import CASES, FEATURES


@pytest.fixture(scope="module")
def page():
    return conversions.page()


def test_every_pair_has_its_losses(page):
    assert set(FEATURES) == set(get_args(Feature)) and list(CASES) == list(TRIED)
    pairs = [line for line in page.splitlines() if line.startswith("### ") and "→" in line]
    assert len(pairs) == 12
    for upstream, codecs in CODECS.items():
        for client in FAMILY_NAMES:
            if client != upstream:
                section = _section(page, client, upstream)
                for feature, named in FEATURES.items():
                    name = getattr(named, client)
                    lost = name and codecs.upstream.verdict(feature, Traits()) != "map"
                    assert not lost or f"| {named.words} | {name} | " in section


def test_models_and_what_they_change_are_named(page):
    section = _section(page, "chat_completions", "messages")
    row = next(line for line in section.splitlines() if line.startswith("| an image in the"))
    assert row.endswith("| carried | `images=false`: refused |")
    for vendor, _, prefix in conversions.TABLE:
        words = (vendor or "any", f"`{prefix}`" if prefix else "any name")
        assert any(all(word in line for word in words) for line in page.splitlines())


def _section(page, client, upstream):
    titles = conversions.TITLES
    head = f"### {titles[client].capitalize()} → {titles[upstream]}\n"
    return page.split(head)[1].split("\n#")[0]

"""Verdicts on requested features, at upstreams of each family."""

from typing import get_args

import pytest

from adapters.family.traits import Traits
from adapters.family.verdicts import Verdict, verdict_of
from adapters.ir.request import Feature
from adapters.registry import FAMILY_NAMES

LEAST = Traits(
    images=False,
    documents=False,
    sampling=False,
    structured="none",
    thinking="none",
    prefill=False,
    choices=False,
    logprobs=False,
)
# what a model cannot take where the family's models usually can
LOST: dict[str, dict[Verdict, set[Feature]]] = {
    "chat_completions": {
        "refuse": {"n", "image_data", "image_url", "document_data", "schema_output", "logprobs"},
        "note": {
            *("temperature", "top_p", "frequency_penalty", "presence_penalty", "logit_bias"),
            "reasoning",
        },
    },
    "responses": {
        "refuse": {
            *("image_data", "image_url", "document_data", "document_url", "schema_output"),
            *("json_output", "logprobs"),
        },
        "note": {"temperature", "top_p", "reasoning"},
    },
    "messages": {
        "refuse": {"image_data", "image_url", "document_data", "document_url", "schema_output"},
        "note": {"temperature", "top_p", "top_k", "reasoning", "prefill"},
    },
    "generate_content": {
        "refuse": {
            *("n", "image_data", "image_url", "video", "document_data", "document_url"),
            *("schema_output", "logprobs"),
        },
        "note": {
            *("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty"),
            "reasoning",
        },
    },
}
MOST = Traits(audio=True, verbosity=True, search=True, strict_tools=True, openai_extras=True)
# what a model can take where the family's models usually cannot
GAINED: dict[str, set[Feature]] = {
    "chat_completions": {
        "audio",
        "verbosity",
        "hosted_search",
        "tier",
        "speed",
        "cache_key",
        "forced_search",
    },
    "responses": {"audio", "verbosity", "hosted_search", "tier", "cache_key"},
    "messages": {"strict_tool", "hosted_search"},
    "generate_content": {"audio"},
}


def verdicts_of(family, traits):
    return {feature: verdict_of(family)(feature, traits) for feature in get_args(Feature)}


def changed(family, traits):
    """Return the verdicts that differ from those for an unknown model."""
    verdicts, usual = verdicts_of(family, traits), verdicts_of(family, Traits())
    return {feature: verdict for feature, verdict in verdicts.items() if verdict != usual[feature]}


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_each_feature_has_a_verdict(family):
    assert set(verdicts_of(family, Traits()).values()) == set(get_args(Verdict))


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_less_than_usual_is_noted_or_refused(family):
    lost = {feature: verdict for verdict, of in LOST[family].items() for feature in of}
    assert changed(family, LEAST) == lost


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_more_than_usual_is_carried(family):
    assert changed(family, MOST) == dict.fromkeys(GAINED[family], "map")


@pytest.mark.parametrize(
    ("traits", "feature", "verdict"),
    [
        (Traits(sampling=False), "logprobs", "refuse"),
        (Traits(logprobs=False), "logprobs", "refuse"),
        (Traits(logprobs=False), "logit_bias", "note"),
    ],
)
def test_logprobs_need_sampling(traits, feature, verdict):
    assert verdict_of("chat_completions")(feature, traits) == verdict


@pytest.mark.parametrize("traits", [Traits(search=True), Traits(openai_extras=True)])
def test_openai_searches_by_whatever_model(traits):
    assert verdict_of("responses")("hosted_search", traits) == "map"
    assert verdict_of("responses")("hosted_search", Traits()) == "note"

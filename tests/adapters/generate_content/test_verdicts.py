"""What becomes of what requests ask for at upstreams of this family."""

from typing import get_args

import pytest

from adapters.family.traits import Traits
from adapters.generate_content import CODECS
from adapters.ir.request import Feature
from adapters.models import traits_of


def test_each_feature_has_a_verdict():
    assert set(CODECS.upstream.verdicts) == set(get_args(Feature))
    assert set(CODECS.upstream.verdicts.values()) == {"map", "note", "refuse"}


@pytest.mark.parametrize(
    ("traits", "feature", "verdict"),
    [
        (Traits(audio=True), "audio", None),
        (Traits(), "audio", "refuse"),
        (Traits(images=False), "image_data", "refuse"),
        (Traits(documents=False), "document_url", "refuse"),
        (Traits(sampling=False), "temperature", "note"),
        (Traits(structured="none"), "schema_output", "refuse"),
        (Traits(thinking="none"), "reasoning", "note"),
        (Traits(choices=False), "n", "refuse"),
        (Traits(logprobs=False), "logprobs", "refuse"),
    ],
)
def test_what_a_model_cannot_take(traits, feature, verdict):
    assert CODECS.upstream.verdicts_of(traits).get(feature) == verdict


@pytest.mark.parametrize(
    ("model", "thinking", "schemas", "least"),
    [
        ("gemini-3-pro-preview", "effort", "json_schema", "low"),
        ("models/gemini-3-flash", "effort", "json_schema", "minimal"),
        ("gemini-2.5-pro", "budget", "json_schema", "minimal"),
        ("gemini-2.5-flash-lite", "budget", "json_schema", "off"),
        ("gemini-2.0-flash", "none", "subset", "off"),
        ("something-new", "effort", "json_schema", "off"),
    ],
)
def test_the_table_of_models(model, thinking, schemas, least):
    for vendor in ("gemini", "demo"):
        traits = traits_of(vendor, "generate_content", model)
        assert (traits.thinking, traits.schemas, traits.audio) == (thinking, schemas, True)
        assert traits.efforts[0] == least

"""What becomes of what requests ask for."""

from typing import get_args

from adapters.chat_completions.verdicts import VERDICTS, verdicts_of
from adapters.family.traits import Traits
from adapters.ir.request import Feature


def test_each_feature_has_a_verdict():
    assert set(VERDICTS) == set(get_args(Feature))


def test_what_models_cannot_take():
    assert verdicts_of(Traits()) == {}
    less = Traits(images=False, documents=False, structured="none", choices=False, thinking="none")
    assert verdicts_of(less) == {
        "n": "refuse",
        "image_data": "refuse",
        "image_url": "refuse",
        "document_data": "refuse",
        "schema_output": "refuse",
        "reasoning": "note",
    }
    reasoning = verdicts_of(Traits(sampling=False))
    assert reasoning["temperature"] == "note" and reasoning["logprobs"] == "refuse"


def test_what_some_models_can_take():
    more = Traits(audio=True, verbosity=True, search=True, openai_extras=True)
    assert set(verdicts_of(more).values()) == {"map"}
    assert set(verdicts_of(more)) == {
        *("audio", "verbosity", "hosted_search", "tier", "speed", "cache_key"),
    }

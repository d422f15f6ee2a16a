"""What becomes of what requests ask for, at upstreams of the messages family."""

from typing import get_args

from adapters.family.traits import Traits
from adapters.ir.request import Feature
from adapters.messages import CODECS
from adapters.models import traits_of


def test_every_feature_has_a_verdict():
    assert set(CODECS.upstream.verdicts) == set(get_args(Feature))


def test_a_model_that_takes_everything_takes_what_the_table_says():
    everything = Traits()
    assert CODECS.upstream.verdicts_of(everything) == {}


def test_models_that_lack_something():
    least = Traits(
        images=False,
        documents=False,
        sampling=False,
        structured="none",
        strict_tools=True,
        search=True,
        thinking="none",
        prefill=False,
    )
    assert CODECS.upstream.verdicts_of(least) == {
        "image_data": "refuse",
        "image_url": "refuse",
        "document_data": "refuse",
        "document_url": "refuse",
        "temperature": "note",
        "top_p": "note",
        "top_k": "note",
        "schema_output": "refuse",
        "strict_tool": "map",
        "hosted_search": "map",
        "reasoning": "note",
        "prefill": "note",
    }


def test_generations_of_claude():
    for vendor in ("anthropic", "openrouter"):
        newest = traits_of(vendor, "messages", "anthropic/claude-next-9")
        assert (newest.thinking, newest.sampling, newest.prefill) == ("adaptive", False, False)
        for name in ("claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4.5"):
            traits = traits_of(vendor, "messages", name)
            assert (traits.thinking, traits.structured) == ("budget", "schema")
        old = traits_of(vendor, "messages", "claude-3-haiku-20240307")
        assert (old.thinking, old.structured, old.documents) == ("none", "tool", False)
    assert traits_of("anthropic", "messages", "claude-opus-4-6").search
    assert not traits_of("openrouter", "messages", "claude-opus-4.6").search
    assert traits_of("deepseek", "messages", "deepseek-chat").structured == "tool"

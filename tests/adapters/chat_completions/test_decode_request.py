"""Fields of a client's request in the hub's words, and what they ask for."""

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.request import Output, Thinking
from tests.adapters.chat_completions.calls import HI, asked_for, decoded


def test_a_plain_request_asks_for_nothing():
    request = decoded(stream=True)
    assert (request.family, request.stream, request.asks) == ("chat_completions", True, ())
    assert not request.include_usage and request.max_output_tokens is None
    nothing = decoded(
        temperature=1, top_p=1.0, n=1, stop=[], logit_bias={}, parallel_tool_calls=True,
        store=False, modalities=["text"], metadata={}, frequency_penalty=0, logprobs=False,
        service_tier="auto", response_format={"type": "text"}, seed=None, moderation=None,
    )  # fmt: skip
    assert nothing.asks == ()


def test_sampling_and_bounds():
    request = decoded(
        temperature=0.5, top_p=0.9, top_k=7, seed=-3, frequency_penalty=-1, presence_penalty=2,
        logit_bias={"50256": -100}, n=3, stop="END", max_tokens=9, max_completion_tokens=8,
        logprobs=True, top_logprobs=2, verbosity="low",
    )  # fmt: skip
    assert (request.temperature, request.top_p, request.top_k, request.seed) == (0.5, 0.9, 7, -3)
    assert (request.frequency_penalty, request.presence_penalty) == (-1, 2)
    assert request.logit_bias == {"50256": -100} and request.n == 3 and request.stop == ("END",)
    assert request.max_output_tokens == 8 and request.logprobs == 2
    assert request.verbosity == "low"
    assert set(asked_for(request)) == {
        *("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty"),
        *("logit_bias", "n", "stop", "logprobs", "verbosity"),
    }
    assert decoded(max_tokens=9).max_output_tokens == 9
    assert decoded(logprobs=True).logprobs == 0
    assert decoded(top_logprobs=3).logprobs is None


def test_around_the_call():
    request = decoded(
        user="u", safety_identifier="s", prompt_cache_key="k", metadata={"a": "b"},
        service_tier="flex", store=True, parallel_tool_calls=False, unheard_of={"x": 1},
        prediction={"type": "content", "content": "x"}, modalities=["text", "audio"],
        stream_options={"include_usage": True, "include_obfuscation": True},
    )  # fmt: skip
    assert (request.end_user, request.cache_key, request.tier) == ("s", "k", "flex")
    assert request.metadata == {"a": "b"} and request.parallel_tools is False
    assert request.include_usage
    asks = {(ask.feature, ask.path) for ask in request.asks}
    assert {
        ("end_user", "user"), ("end_user", "safety_identifier"), ("cache_key", "prompt_cache_key"),
        ("metadata", "metadata"), ("tier", "service_tier"), ("other", "store"),
        ("parallel_tools", "parallel_tool_calls"), ("other", "unheard_of"),
        ("other", "stream_options.include_obfuscation"),
        ("prediction", "prediction"), ("output_modalities", "modalities"),
    } == asks  # fmt: skip
    fast = decoded(service_tier="fast")
    assert fast.tier == "priority" and asked_for(fast) == {"speed": "service_tier"}
    assert asked_for(decoded(service_tier="scale")) == {"other": "service_tier"}


def test_the_form_of_the_answer():
    schema = {"type": "object", "properties": {}}
    said = {"name": "tea", "schema": schema, "strict": True, "description": "d"}
    request = decoded(response_format={"type": "json_schema", "json_schema": said})
    assert request.output == Output("schema", schema, "tea", "d", True)
    assert asked_for(request) == {"schema_output": "response_format"}
    assert decoded(response_format={"type": "json_object"}).output == Output("json")


@pytest.mark.parametrize(
    ("word", "effort"),
    [("none", "off"), ("minimal", "minimal"), ("high", "high"), ("xhigh", "xhigh"), ("max", "max")],
)
def test_effort(word, effort):
    request = decoded(reasoning_effort=word)
    assert request.thinking == Thinking(effort, show="none" if effort == "off" else "full")
    assert asked_for(request) == {"reasoning": "reasoning_effort"}
    assert decoded(reasoning_effort=None).thinking is None


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("messages", {"messages": []}),
        ("messages", {"messages": None}),
        ("messages[0]", {"messages": ["hello"]}),
        ("temperature", {"temperature": 3}),
        ("temperature", {"temperature": "warm"}),
        ("temperature", {"temperature": True}),
        ("seed", {"seed": 1.5}),
        ("n", {"n": 0}),
        ("n", {"n": 10**9}),
        ("max_tokens", {"max_tokens": 0}),
        ("stop", {"stop": [1]}),
        ("stop", {"stop": ["x"] * 17}),
        ("stop", {"stop": {}}),
        ("stop", {"stop": "x" * 257}),
        ("stop[1]", {"stop": ["x" * 256, "x" * 257]}),
        ("logit_bias.5", {"logit_bias": {"5": "x"}}),
        ("top_logprobs", {"top_logprobs": 21}),
        ("reasoning_effort", {"reasoning_effort": "huge"}),
        ("reasoning_effort", {"reasoning_effort": 5}),
        ("response_format.type", {"response_format": {"type": "xml"}}),
        ("response_format.json_schema", {"response_format": {"type": "json_schema"}}),
        (
            "response_format.json_schema.schema",
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        ),
        ("verbosity", {"verbosity": "chatty"}),
        ("user", {"user": 5}),
        ("metadata", {"metadata": "x"}),
        ("stream_options.include_usage", {"stream_options": {"include_usage": 1}}),
    ],
)
def test_a_wrong_field_is_named(param, fields):
    with pytest.raises(Fault) as caught:
        decoded(**{"messages": HI, **fields})
    assert caught.value.param == param
    assert caught.value.condition in (Condition.INVALID_FIELD, Condition.FIELD_MISSING)

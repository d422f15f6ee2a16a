"""Admission of requests beyond text and functions: the group's features, prices."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from adapters.family import Operation, Peek
from adapters.family.asks import Ask, Asks, ModelAsk
from adapters.faults import Condition, Fault
from handlers.relay.admit_asks import check_asks
from handlers.relay.call import Offer
from store.catalog.catalog import EMPTY, Model
from store.values.features import FEATURES, allowed_features
from store.values.pricing import Prices, conditional_rate, plain_rate
from tests.handlers.relay.calls import CHANNEL, a_call

PLAIN = {"input": 10**9, "output": 10**9}
NATIVE, FOREIGN = CHANNEL, replace(CHANNEL, id="chat", family="chat_completions")
DEARER = [name for name, feature in FEATURES.items() if feature.dearer]
HOSTED = [name for name, feature in FEATURES.items() if feature.meter and not feature.dearer]
UNSUPPORTED = "background"
OTHERS = [name for name in FEATURES if name not in (*DEARER, *HOSTED, UNSUPPORTED)]
SEARCH = Ask("web_search", "tools[1]", droppable=True)
FORCED = Ask("web_search", "tools[1]")


def prices(meters=(), *conditions):
    """Return prices of text and of these meters; with a rate for each (condition, word)."""
    plain = plain_rate(PLAIN | dict.fromkeys(meters, 1))
    return Prices(plain, tuple(conditional_rate(plain, (when,), 10**6) for when in conditions))


BARE = prices()


def offered(words=("*",), channels=(NATIVE,), model_prices=BARE):
    group = replace(a_call().offer.group, features=allowed_features(words))
    return Offer(group, a_call().offer.model, model_prices, channels)


def peek(asks):
    return Peek("m", False, None, 1, include_usage=True, asks=asks)


def check(asks, policy="refuse_dearer", head=None, **more):
    """Check the requested features of a call of the messages family."""
    return check_asks(head or a_call("messages").head, offered(**more), peek(asks), policy)


def ask(feature, word=""):
    return Asks((Ask(feature, f"at.{feature}", word),))


@pytest.mark.parametrize("feature", [name for name in FEATURES if name != UNSUPPORTED])
def test_what_is_taken_away_is_refused_and_nothing_else(feature):
    asks = ask(feature, "us")
    check(asks, policy="serve")
    check(asks, words=[feature], policy="serve")
    check(asks, words=["*", *(f"-{name}" for name in FEATURES if name != feature)], policy="serve")
    for words in ([], ["*", f"-{feature}"]):
        with pytest.raises(Fault) as caught:
            check(asks, words=words)
        fault = caught.value
        assert (fault.condition, fault.param) == (Condition.FEATURE_NOT_ALLOWED, f"at.{feature}")
        assert f"'{feature}'" in fault.message


@pytest.mark.parametrize(("search", "channels", "refused"), [
    (SEARCH, (NATIVE,), True),
    (SEARCH, (FOREIGN,), False),
    (SEARCH, (NATIVE, FOREIGN), True),
    (SEARCH, (), False),
    (FORCED, (NATIVE,), True),
    (FORCED, (FOREIGN,), True),
])  # fmt: skip
def test_a_hosted_tool_that_is_not_forced_is_left_to_the_translation(search, channels, refused):
    more = {"words": ["*", "-web_search"], "channels": channels}
    for policy in ("refuse_dearer", "refuse"):  # what is left out needs no price
        with pytest.raises(Fault, match="E40") if refused else nullcontext():
            checked = check(Asks((search,)), policy, **more)
            assert checked.asks.left_out == {"tools[1]"}


@pytest.mark.parametrize(("features", "policy", "refused"), [
    *((DEARER, policy, policy != "serve") for policy in ("refuse_dearer", "refuse", "serve")),
    *((HOSTED, policy, policy == "refuse") for policy in ("refuse_dearer", "refuse", "serve")),
    *((OTHERS, policy, False) for policy in ("refuse_dearer", "refuse", "serve")),
    # an unknown service tier or speed counts as dearer
    *((["tier", "speed"], policy, policy != "serve")
      for policy in ("refuse_dearer", "refuse", "serve")),
])  # fmt: skip
def test_what_has_no_price_is_refused_as_the_setting_says(features, policy, refused):
    for feature in features:
        with pytest.raises(Fault) if refused else nullcontext() as caught:
            check(ask(feature, "novel"), policy)
        if refused:
            fault = caught.value
            assert (fault.condition, fault.param) == (Condition.FEATURE_UNPRICED, f"at.{feature}")
            assert feature in fault.message and "'m'" in fault.message


@pytest.mark.parametrize(("feature", "word", "model_prices", "refused"), [
    ("tier.priority", "priority", prices((), ("tier", "priority")), False),
    ("tier.priority", "priority", prices((), ("tier", "flex")), True),
    ("tier.ultrafast", "ultrafast", prices((), ("tier", "priority")), True),
    ("tier", "turbo", prices((), ("tier", "turbo")), False),
    ("tier", "turbo", prices((), ("tier", "priority")), True),
    ("speed.fast", "fast", prices((), ("speed", "fast")), False),
    ("speed.fast", "fast", prices((), ("tier", "fast")), True),
    ("speed", "faster", prices((), ("speed", "fast")), True),
    ("geo", "us", prices((), ("geo", "us")), False),
    ("geo", "eu", prices((), ("geo", "us")), True),
    ("image_output", "", prices(["output_image"]), False),
    ("image_output", "", prices(["output_audio", "input_image"]), True),
    ("audio_output", "", prices(["output_audio"]), False),
    ("web_search", "", prices(["web_search"]), False),
    ("code_execution", "", prices(["code_interpreter"]), False),
    ("code_execution", "", prices(["web_search"]), True),
])  # fmt: skip
def test_a_rate_or_a_price_of_its_own_serves_it(feature, word, model_prices, refused):
    with pytest.raises(Fault, match="E41") if refused else nullcontext():
        check(ask(feature, word), model_prices=model_prices, policy="refuse")


def test_the_words_of_a_refusal():
    with pytest.raises(Fault) as caught:
        check(Asks((Ask("tier", "service_tier", "turbo"),)))
    assert caught.value.message == "Model 'm' has no price for 'tier.turbo'."


@pytest.mark.parametrize(("rate", "named"), [(("speed", "fast"), None), (("geo", "us"), "worker")])
def test_a_field_beside_the_name_of_another_model_is_about_that_model(rate, named):
    worker = Model("worker", None, None, False, 0, ((0, prices((), rate)),))
    group = replace(offered().group, models=None)
    snapshot = replace(EMPTY, models={"worker": worker}, groups={group.name: group})
    field = Ask("speed.fast", "fallbacks[0].speed", "fast")
    asks = Asks((field,), models=(ModelAsk("fallbacks", 0, "worker"),))
    with pytest.raises(Fault, match="'worker'") if named else nullcontext():
        check(asks, head=a_call("messages", snapshot=snapshot).head)


def test_a_call_that_costs_nothing_needs_no_price():
    free = Operation("/v1/some/count", free=True)
    check(ask("geo", "us"), head=a_call("messages", operation=free).head)


@pytest.mark.parametrize(("words", "refused"), [(["*"], "E14"), (["*", "-background"], "E40")])
def test_the_features_come_before_what_is_not_supported(words, refused):
    with pytest.raises(Fault, match=refused):
        check(ask("background"), words=words)

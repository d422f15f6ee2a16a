"""Channels that can carry a request, and the translation for one of them."""

import json
from dataclasses import replace

import pytest

from adapters.codecs import TRANSLATORS
from adapters.family.codec import AnswerContext
from adapters.family.opaque import unwrap, wrap
from adapters.faults import Condition, Fault
from adapters.ir.parts import Reasoning, Text, Turn
from adapters.ir.request import Ask, Request
from adapters.json.structure import at_once
from handlers.relay.routing.plan import Candidate, RoutingRequest
from handlers.relay.translations import Translations
from tests.handlers.relay.calls import CHANNEL
from tests.handlers.relay.toy import TRANSLATIONS

CHAT = replace(CHANNEL, id="chat", family="chat_completions", models={"m": "up"})
MESSAGES = replace(CHANNEL, id="messages", models={"m": "up"})
BOTH = (CHAT, MESSAGES)
HI = Turn("user", (Text("Hi"),))
CONTEXT = AnswerContext("m", "A", 1, 1, include_usage=True)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    for pair, translator in TRANSLATIONS.items():
        monkeypatch.setitem(TRANSLATORS, pair, translator)


@pytest.fixture
def translations():
    return Translations((b"k" * 32,))


def request(*features, turns=(HI,)):
    return Request("toy", False, turns, asks=tuple(Ask(one, f"at.{one}") for one in features))


def begun(translations, candidate, asked=None, **fields):
    fields.setdefault("user_id", "u")
    steps = translations.begin(
        asked or request(), RoutingRequest(BOTH, "toy", "m"), candidate, CONTEXT,
        max_output_tokens=None, **fields,
    )  # fmt: skip
    return at_once(steps)


def test_channels_that_cannot_carry_it_are_left_out(translations):
    wanted = RoutingRequest(BOTH, "toy", "m")
    assert translations.narrowed(request("stop"), wanted) is wanted
    assert translations.narrowed(request("n"), wanted).channels == (MESSAGES,)
    assert translations.narrowed(request("video"), wanted).channels == (CHAT,)
    with pytest.raises(Fault) as caught:
        translations.narrowed(request("video", "n"), wanted)
    assert (caught.value.condition, caught.value.param) == (Condition.UNSUPPORTED, "at.n")


def test_native_channels_can_carry_everything(translations):
    native = replace(CHAT, id="native", family="toy")
    wanted = RoutingRequest((native, *BOTH), "toy", "m")
    assert translations.narrowed(request("video", "n"), wanted).channels == (native,)


def test_the_same_selection_is_the_same_object(translations):
    wanted = RoutingRequest(BOTH, "toy", "m")
    one, other = (translations.narrowed(request("n"), wanted).channels for _ in range(2))
    assert one is other
    for n in range(2_000):
        translations.without(wanted, {"chat", str(n)}, Fault(Condition.UNSUPPORTED))
    assert len(translations._remembered) <= 256
    assert translations.narrowed(request("n"), wanted).channels == (MESSAGES,)


def test_state_goes_back_for_the_same_user_alone(translations):
    first = begun(translations, Candidate(CHAT, 0), user_id="alice")._origin
    other = begun(translations, Candidate(CHAT, 0), user_id="carol")._origin
    assert unwrap(wrap("state", first), first) == "state"
    assert unwrap(wrap("state", first), other) is None


def test_state_goes_back_to_the_same_upstream_key_alone(translations):
    keyed = replace(CHAT, keys=("a", "b"), fingerprints=("fa", "fb"))
    first, second = Candidate(keyed, 0), Candidate(keyed, 1)
    sealed = begun(translations, first)._origin
    assert sealed == begun(translations, first)._origin
    assert sealed.mark != begun(translations, second)._origin.mark
    assert "fa" not in sealed.mark and sealed.family == "chat_completions"


def test_what_the_upstream_has_refused_is_left_out(translations):
    candidate = Candidate(CHAT, 0)
    body = json.loads(begun(translations, candidate).body)
    assert body["stream_options"] == {"include_usage": True}
    body = json.loads(begun(translations, candidate, without="stream_options").body)
    assert "stream_options" not in body
    thought = request(turns=(Turn("assistant", (Reasoning("hm", opaque="gw1.x"),)), HI))
    assert not begun(translations, candidate, thought, without="reasoning").sealed


def test_a_model_that_wants_thoughts_back_is_remembered(translations):
    assert translations.learn_echo(CHAT, "m") and not translations.learn_echo(CHAT, "m")
    assert translations._traits(CHAT, "m").reasoning_echo
    assert not translations._traits(MESSAGES, "m").reasoning_echo
    echoing = replace(MESSAGES, options={"reasoning_echo": True})
    assert not translations.learn_echo(echoing, "m")
    for n in range(300):
        translations.learn_echo(replace(CHAT, id=str(n)), "m")
    assert len(translations._echoing) <= 256


def test_options_that_are_none_are_the_operators_mistake(translations):
    broken = replace(CHAT, options={"images": "perhaps"})
    with pytest.raises(Fault) as caught:
        begun(translations, Candidate(broken, 0))
    assert caught.value.condition is Condition.CHANNEL_MISCONFIGURED

"""How much models of the messages family are asked to think."""

import pytest

from adapters.ir.parts import Reasoning, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Thinking, Tool, ToolChoice
from adapters.messages.parts import sealed_thought
from tests.adapters.messages.calls import asking, sent

EFFORTS = ("low", "medium", "high", "max")
TIDE = Tool("function", "tide")


def asked(wanted, limit=None, bound=None, **traits):
    """The fields ``thinking`` and ``output_config`` and the bound."""
    request = asking(thinking=wanted, max_output_tokens=bound)
    body, _ = sent(request, limit=limit, **traits)
    return body.get("thinking"), body.get("output_config"), body["max_tokens"]


@pytest.mark.parametrize(
    ("thinking", "sent_thinking", "effort"),
    [
        (None, None, None),
        (Thinking("off"), None, None),
        (Thinking(budget_tokens=0), None, None),
        (Thinking("auto"), {"type": "adaptive"}, None),
        (Thinking("minimal"), {"type": "adaptive"}, "low"),
        (Thinking("high", show="none"), {"type": "adaptive", "display": "omitted"}, "high"),
        (Thinking("xhigh", show="full"), {"type": "adaptive", "display": "summarized"}, "high"),
        (Thinking("max", show="summary"), {"type": "adaptive", "display": "summarized"}, "max"),
        (Thinking(budget_tokens=4096), {"type": "adaptive"}, "low"),
        (Thinking(budget_tokens=99999), {"type": "adaptive"}, "high"),
        (Thinking(show="full"), None, None),
    ],
)
def test_models_that_think_by_effort(thinking, sent_thinking, effort):
    config = {"effort": effort} if effort else None
    found = asked(thinking, thinking="adaptive", efforts=EFFORTS)
    assert found == (sent_thinking, config, 8192)


@pytest.mark.parametrize(
    ("thinking", "limit", "given", "budget", "bound"),
    [
        (Thinking("minimal"), None, None, 1024, 8192),
        (Thinking("low"), None, None, 2048, 8192),
        (Thinking("medium"), 64000, None, 8192, 64000),
        (Thinking("xhigh"), 64000, None, 32768, 64000),
        (Thinking("max"), 20000, None, 18976, 20000),
        (Thinking(budget_tokens=10), None, None, 1024, 8192),
        # the bound of nobody is raised, that of a client as far as the model is known to allow
        (Thinking("high"), None, None, 16384, 16384 + 8192),
        (Thinking("high"), 32000, 3000, 16384, 19384),
        (Thinking("high"), 17000, 3000, 15976, 17000),
        (Thinking("high"), None, 3000, 1976, 3000),
        (Thinking("max"), None, 1500, 1024, 1500),
    ],
)
def test_models_that_think_by_a_budget(thinking, limit, given, budget, bound):
    found = asked(thinking, limit, given)
    assert found == ({"type": "enabled", "budget_tokens": budget}, None, bound)


def test_a_bound_that_leaves_no_room_for_thinking():
    request = asking(thinking=Thinking("high"), max_output_tokens=321)
    body, made = sent(request)
    assert (body.get("thinking"), body["max_tokens"]) == (None, 321)
    assert made.dropped == ("reasoning",)


def test_models_that_are_not_asked():
    assert asked(Thinking("auto"))[0] is None
    assert asked(Thinking("high"), thinking="none") == (None, None, 8192)
    assert asked(Thinking("high"), thinking="effort") == (None, {"effort": "high"}, 8192)


def test_a_forced_tool_excludes_a_budget():
    request = asking(thinking=Thinking("high"), tools=(TIDE,), choice=ToolChoice("any"))
    body, made = sent(request)
    assert "thinking" not in body and "reasoning" in made.dropped
    body, made = sent(request, thinking="adaptive")
    assert body["thinking"] == {"type": "adaptive"} and made.dropped == ()


def running(*thoughts, text=()):
    """A round of two calls; the thoughts stand before the first."""
    return (
        Turn("user", (Text("a"),)),
        Turn("assistant", (*thoughts, ToolCall("1", "tide", "{}"))),
        Turn("user", (ToolResult("1", ()), *text)),
        Turn("assistant", (ToolCall("2", "tide", "{}"),)),
        Turn("user", (ToolResult("2", ()),)),
    )


KEPT = Reasoning("hm", opaque=sealed_thought("hm", "s"))


@pytest.mark.parametrize(
    ("turns", "thinks"),
    [
        (running(KEPT), False),
        (running(KEPT)[:3], True),
        (running(Reasoning("hm"))[:3], False),
        (running(text=(Text("hurry"),))[:3], False),
        ((*running()[:-1], Turn("system", (Text("x"),)), running()[-1]), False),
        ((*running(), Turn("assistant", (Text("b"),)), Turn("user", (Text("c"),))), True),
        ((*running()[:2], Turn("user", (Text("stop"),))), False),  # gets a result
    ],
)
def test_a_round_of_tools_that_has_lost_its_thoughts_ends_thinking_by_a_budget(turns, thinks):
    request = asking(*turns, thinking=Thinking("high"), tools=(TIDE,))
    assert ("thinking" in sent(request)[0]) is thinks
    # switching would cost the cache, and these models may have thought nothing
    assert "thinking" in sent(request, thinking="adaptive")[0]


def test_models_that_think_unasked_are_told_not_to():
    off = Thinking("off")
    efforts = ("off", "low")
    assert asked(off, thinking="adaptive", efforts=efforts)[0] == {"type": "disabled"}


def test_no_sampling_beside_thinking():
    request = asking(thinking=Thinking("low"), temperature=0.5, top_k=4)
    body, made = sent(request)
    assert not {"temperature", "top_k"} & set(body)
    assert set(made.dropped) == {"temperature", "top_k"}

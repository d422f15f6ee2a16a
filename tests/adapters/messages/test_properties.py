"""The codecs of messages with random requests and streams: decoding returns what was encoded."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.family.codec import Target
from adapters.family.opaque import Origin
from adapters.family.traits import Traits
from adapters.framing.sse import EventSplitter
from adapters.ir.answer import Finished, Sealed
from adapters.ir.parts import Media, Reasoning, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Output, Request, Thinking, Tool, ToolChoice
from adapters.json.jsonio import dumps, top_level
from adapters.json.structure import at_once
from adapters.messages.parts import thought_of
from adapters.registry import FAMILIES
from adapters.translate import Translator
from tests.adapters.builders import fed, slot
from tests.adapters.messages.calls import CONTEXT, WIRE, events_of, sent, written

CODECS = CODECS_BY_FAMILY["messages"]

# A translation of the family to itself, which the registry does not have, so that streams must be
# equal.
SELF = Translator(FAMILIES["messages"], CODECS.client, CODECS.upstream)
ORIGIN = Origin("messages", "mark", b"k" * 32, "user")

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(str.strip)
NAMES = st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=3)
TOOLS = st.lists(
    st.builds(Tool, st.just("function"), NAMES, WORDS, st.just({"type": "object"})),
    max_size=3,
    unique_by=lambda tool: tool.name,
).map(tuple)
IMAGE = Media("image", "image/png", data="iVBORw0KGgo=")
SAID = st.lists(WORDS.map(Text), min_size=1, max_size=3)


@st.composite
def conversations(draw, ids=NAMES):
    """Draw valid turns: the user first, each call with its result."""
    turns = [Turn("user", tuple(draw(SAID)))]
    used: set[str] = set()
    for _ in range(draw(st.integers(0, 3))):
        wanted = draw(st.lists(ids, max_size=3, unique=True))
        calls = [each for each in wanted if each not in used]
        used.update(calls)
        made = [ToolCall(each, draw(NAMES), dumps(draw(ARGUMENTS)).decode()) for each in calls]
        turns.append(Turn("assistant", (*draw(SAID), *made)))
        results = tuple(
            ToolResult(each, tuple(draw(SAID)), error=draw(st.booleans())) for each in calls
        )
        rest = draw(SAID) + ([IMAGE] if draw(st.booleans()) else [])
        turns.append(Turn("user", (*results, *rest)))
    return tuple(turns)


@st.composite
def requests(draw):
    tools = draw(TOOLS)
    choices = [None]
    if tools:
        choices += [ToolChoice("any"), ToolChoice("none"), ToolChoice("one", (tools[0].name,))]
    thinking = [None, Thinking("auto", show="summary"), Thinking("high", show="none")]
    return Request(
        "messages",
        draw(st.booleans()),
        draw(conversations()),
        system=tuple(draw(st.lists(WORDS.map(Text), max_size=2))),
        tools=tools,
        choice=draw(st.sampled_from(choices)),
        output=draw(st.sampled_from([Output(), Output("schema", {"type": "string"})])),
        thinking=draw(st.sampled_from(thinking)),
        temperature=None,
        max_output_tokens=draw(st.integers(1, 9999)),
        stop=tuple(draw(st.lists(WORDS, max_size=2))),
        end_user=draw(st.sampled_from(["", "u-7"])),
        tier=draw(st.sampled_from(["", "auto", "default"])),
    )


def plain(request):
    """Return a request without the paths of its parts, with calls compared by value."""

    def part(each):
        if isinstance(each, Media):
            return replace(each, path="")
        if isinstance(each, ToolCall):
            return each.id, each.name, json.loads(each.arguments)
        return each

    turns = [(turn.role, [part(each) for each in turn.parts]) for turn in request.turns]
    tools = tuple(replace(tool, path="") for tool in request.tools)
    return turns, replace(request, turns=(), asks=(), tools=tools)


@given(requests())
@settings(max_examples=120, deadline=None)
def test_a_request_comes_back(request):
    if request.thinking is not None:  # a round of tools without thoughts would switch thinking off
        request = replace(request, turns=request.turns[:1])
    body, _ = sent(request, thinking="adaptive")
    again = at_once(CODECS.client.decode_request(top_level(dumps(body)), request.stream, None))
    if not request.tools:  # without tools, functions are declared for calls of the history
        again = replace(again, tools=(), choice=None)
    assert plain(again) == plain(request)


@st.composite
def streams(draw):
    """Draw events of slots one after the other, as a messages vendor sends them."""
    events = []
    for number, kind in enumerate(draw(st.lists(st.sampled_from(["text", "reasoning", "call"])))):
        pieces = draw(st.lists(st.text(min_size=1, max_size=5), max_size=4))
        if kind == "call":
            events += slot(number, kind, '{"a":', "1}", id=f"c{number}", name="n")
        elif kind == "reasoning":  # an empty one at the end is not shown
            events += slot(number, kind, *(pieces or ["hm"]), seal="c2ln")
        else:
            events += slot(number, kind, *pieces)
    finish = draw(st.sampled_from(["stop", "length", "tools", "pause", "context_full"]))
    return [*events, Finished(finish)]


def unsealed(events):
    """Return the events with plain signatures: the decoder returns a thought with its signature,
    the encoder takes the wrapped form of both."""
    return [
        Sealed(event.slot, thought_of(event.opaque)["signature"])
        if isinstance(event, Sealed)
        else event
        for event in events
    ]


@given(streams())
@settings(max_examples=120, deadline=None)
def test_a_stream_comes_back(events):
    assert unsealed(events_of(written(events))) == events


def begun(*turns):
    request = Request("messages", True, turns)
    target = Target("anthropic", "claude", Traits())
    return at_once(SELF.begin(request, target, CONTEXT, ORIGIN, count=False))


def test_repeated_thoughts_are_sealed_whole():
    stream = (WIRE / "thinking.sse").read_bytes()
    events = [bytes(event) for event in EventSplitter(1 << 20).feed(stream)]
    at = next(i for i, event in enumerate(events) if b"thinking_delta" in event)
    operation = FAMILIES["messages"].client.operations["generate"]
    bridge = begun(Turn("user", (Text("a"),))).open_bridge(
        "public", "claude", False, operation, 1 << 20
    )
    repeated = [*events[:at], *[events[at]] * 5, *events[at + 1 :]]
    out = b"".join([*(fed(bridge, event) for event in repeated), bridge.close()])
    # the client gets the wrapped form, which contains all five deltas and the last one
    (sealed,) = unsealed(event for event in events_of(out) if isinstance(event, Sealed))
    opened = begun(Turn("assistant", (Reasoning("", opaque=sealed.opaque),)))
    (message,) = [m for m in json.loads(opened.body)["messages"] if m["role"] == "assistant"]
    thought = "The harbour has two gauges. " * 5 + "I should ask both."
    assert message["content"][0]["thinking"] == thought

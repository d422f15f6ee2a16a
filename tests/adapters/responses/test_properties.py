"""Round trips of random requests, answers and streams."""

import json
import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.ir.answer import Choice, Closed, Delta, Finished, Opened, Sealed
from adapters.ir.parts import Media, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Output, Request, Thinking, Tool, ToolChoice
from adapters.json.structure import at_once
from adapters.responses import CODECS
from adapters.responses.reasoning_state import seal
from tests.adapters.responses.calls import (
    CONTEXT,
    USAGE,
    decoded,
    encoded,
    read,
    written,
)

SEALED = seal({"id": "rs_1", "encrypted_content": "state"})

words = st.text(min_size=1, max_size=12)
names = st.from_regex(r"[a-z_]{1,10}", fullmatch=True)
arguments = st.dictionaries(names, st.integers() | words, max_size=2).map(json.dumps)
images = st.builds(
    Media,
    st.just("image"),
    st.sampled_from(["image/png", "image/webp"]),
    st.sampled_from(["aGk=", "+/+/"]),
    detail=st.sampled_from(["", "low", "high"]),
)
documents = st.builds(
    Media, st.just("file"), st.just("application/pdf"), st.just("JVBE"), name=st.just("a.pdf")
)
plain = st.builds(
    Media, st.just("file"), st.just("text/plain"), words, name=st.just("a.txt"), plain=st.just(True)
)
texts = st.builds(Text, words)
said_by_users = st.lists(texts | images | documents | plain, min_size=1, max_size=3)
thoughts = st.builds(Reasoning, words, summary=st.just(True), opaque=st.just(SEALED))
spoken = st.lists(texts | thoughts | st.builds(Refusal, words), max_size=3)
calls = st.lists(st.tuples(names, arguments, st.booleans()), max_size=3)
tools = st.builds(
    Tool,
    st.just("function"),
    names,
    words,
    st.just({"type": "object", "properties": {"a": {"type": "string"}}}),
    st.booleans(),
    st.sampled_from(["", "space"]),
) | st.builds(
    Tool, st.just("custom"), names, words, grammar=words, grammar_syntax=st.sampled_from(["lark"])
)


@st.composite
def turns(draw) -> tuple[Turn, ...]:
    """A conversation that ends with the user's turn; each call has its result."""
    found: list[Turn] = [Turn("user", tuple(draw(said_by_users)))]
    for number in range(draw(st.integers(0, 3))):
        made = [
            ToolCall(f"c{number}{i}", name, text, custom=custom)
            for i, (name, text, custom) in enumerate(draw(calls))
        ]
        parts = (*draw(spoken), *made) or (Text("x"),)
        answers = [
            ToolResult(call.id, tuple(draw(st.lists(texts, min_size=1, max_size=1))))
            for call in made
        ]
        answers = [
            replace(one, custom=call.custom) for one, call in zip(answers, made, strict=True)
        ]
        more = draw(st.lists(texts | images, min_size=0 if answers else 1, max_size=2))
        found += [Turn("assistant", parts), Turn("user", (*answers, *more))]
        if draw(st.booleans()):
            found.append(Turn("system", (Text("Hush."),)))
            found += [Turn("user", (Text("Well?"),))]
    return tuple(found)


requests = st.builds(
    Request,
    st.just("responses"),
    st.booleans(),
    turns(),
    st.lists(texts, max_size=1).map(tuple),
    st.lists(tools, max_size=3, unique_by=lambda tool: tool.name).map(tuple),
    parallel_tools=st.just(None),
    output=st.sampled_from(
        [Output(), Output("json"), Output("schema", {"type": "object"}, "tea", "Tea.", True)]
    ),
    verbosity=st.sampled_from(["", "low", "high"]),
    thinking=st.none()
    | st.builds(Thinking, st.sampled_from(["minimal", "high", "max"]), show=st.just("summary")),
    temperature=st.none() | st.floats(0, 2),
    top_p=st.none() | st.floats(0, 1),
    max_output_tokens=st.none() | st.integers(16, 1 << 20),
    logprobs=st.none() | st.integers(0, 20),
    end_user=st.sampled_from(["", "u"]),
    metadata=st.none() | st.just({"a": "b"}),
    tier=st.sampled_from(["", "auto", "default", "flex", "priority"]),
    cache_key=st.sampled_from(["", "k"]),
)


def bare(request: Request) -> Request:
    """Without what says only where something stood."""
    return replace(
        request,
        asks=(),
        turns=tuple(
            replace(turn, parts=tuple(map(placeless, turn.parts))) for turn in request.turns
        ),
        tools=tuple(replace(tool, path="", raw=None) for tool in request.tools),
    )


def placeless(part: Part) -> Part:
    if isinstance(part, Reasoning):  # its state as the vendor said it
        return replace(part, opaque="state" if part.opaque else "")
    return replace(part, path="") if isinstance(part, Media) else part


def grouped(request: Request) -> Request:
    """Tools of a namespace stand together, where the first of them stood."""
    first = [tool for tool in request.tools if tool.namespace][:1]
    found: list[Tool] = []
    for tool in request.tools:
        if not tool.namespace:
            found.append(tool)
        elif tool in first:
            found += [one for one in request.tools if one.namespace]
    return replace(request, tools=tuple(found))


@settings(max_examples=60, deadline=None)
@given(requests, st.sampled_from([None, "auto", "none", "any", "one"]))
def test_a_request_means_the_same_behind_both_sides(request, mode):
    if mode is not None and request.tools:
        chosen = (request.tools[0].name,) if mode == "one" else ()
        request = replace(request, choice=ToolChoice(mode, chosen))
    body, _ = encoded(request)
    del body["model"]
    again = decoded(body.pop("input"), body.pop("stream", False), **body)
    if request.thinking is None:
        again = replace(again, thinking=None)
    assert bare(again) == bare(grouped(request))


answer_parts = st.lists(
    texts
    | thoughts
    | st.builds(Refusal, words)
    | st.builds(ToolCall, st.uuids().map(str), names, arguments, st.booleans()),
    max_size=5,
)


def stream_of(parts: list[Part], cut: random.Random) -> list:
    """The events of an answer, its texts in pieces."""
    events: list = []
    for slot, part in enumerate(parts):
        if isinstance(part, ToolCall):
            events.append(Opened(slot, "call", id=part.id, name=part.name, custom=part.custom))
            text = part.arguments
        else:
            kind = {Text: "text", Reasoning: "reasoning", Refusal: "refusal"}[type(part)]
            events.append(Opened(slot, kind))
            text = part.text
        places = sorted({0, len(text), *(cut.randint(0, len(text)) for _ in range(3))})
        events += [Delta(slot, text[start:end]) for start, end in pairwise(places)]
        if isinstance(part, Reasoning):
            events.append(Sealed(slot, "state"))
        events.append(Closed(slot))
    return [*events, Finished("stop")]


def parts_of(events: list) -> list[Part]:
    """What events say, as parts."""
    opened: dict[int, Opened] = {}
    said: dict[int, str] = {}
    sealed: dict[int, str] = {}
    for event in events:
        if isinstance(event, Opened):
            opened[event.slot], said[event.slot] = event, ""
        elif isinstance(event, Delta):
            said[event.slot] += event.text
        elif isinstance(event, Sealed):
            sealed[event.slot] = json.loads(event.opaque)[1]
    return [
        {
            "text": lambda one, text: Text(text),
            "refusal": lambda one, text: Refusal(text),
            "call": lambda one, text: ToolCall(one.id, one.name, text, one.custom),
            "reasoning": lambda one, text: Reasoning(text, True, sealed[one.slot]),
        }[one.kind](one, said[slot])
        for slot, one in opened.items()
    ]


@settings(max_examples=150, deadline=None)
@given(answer_parts, st.randoms(use_true_random=False))
def test_a_stream_says_the_same_behind_both_sides(parts, cut):
    stream = written(stream_of(parts, cut))
    wanted = [placeless(part) for part in parts]
    assert parts_of(read(stream)) == wanted
    whole = json.dumps(json.loads(stream.decode().rsplit("data: ", 1)[1])["response"]).encode()
    (choice,) = at_once(CODECS.upstream.decode_answer(whole))
    assert [unsealed(part) for part in choice.parts] == wanted


@settings(max_examples=150, deadline=None)
@given(answer_parts)
def test_an_answer_says_the_same_behind_both_sides(parts):
    parts = [placeless(part) for part in parts]
    body = at_once(CODECS.client.encode_answer((Choice(tuple(parts)),), USAGE, CONTEXT))
    (choice,) = at_once(CODECS.upstream.decode_answer(body))
    assert [unsealed(part) for part in choice.parts] == parts


def unsealed(part: Part) -> Part:
    sealed = isinstance(part, Reasoning) and part.opaque
    return replace(part, opaque=json.loads(part.opaque)[1]) if sealed else part

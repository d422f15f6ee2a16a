"""What holds of all requests and streams: round trips, and any cut."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.generate_content import CODECS
from adapters.generate_content.parts import sealed
from adapters.ir.answer import Choice, Closed, Delta, Event, Finished, Opened, Sealed
from adapters.ir.parts import Media, Part, Reasoning, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Output, Request, Thinking, Tool, ToolChoice
from adapters.ir.usage import Usage
from adapters.json.structure import at_once
from tests.adapters.generate_content.bridged import chunks_of
from tests.adapters.generate_content.calls import CONTEXT, decoded, encoded

USAGE = Usage(10, 5)

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
names = st.from_regex(r"[a-z_][a-z.:-]{0,9}", fullmatch=True)
arguments = st.dictionaries(words, st.integers(-9, 9) | words, max_size=2).map(
    lambda said: json.dumps(said, separators=(",", ":"), ensure_ascii=False)
)
media = st.sampled_from(
    [
        Media("image", "image/png", "+/8="),
        Media("audio", "audio/wav", "AAAA"),
        Media("file", "application/pdf", "JVBE"),
        Media("file", "text/plain", "é", plain=True),
        Media("image", "image/webp", url="https://a.example/b"),
        Media("video", url="https://youtu.be/a"),
    ]
)
texts = st.builds(Text, words)
schemas = st.sampled_from([None, {"type": "object", "properties": {"a": {"type": "string"}}}])
tools = st.builds(Tool, st.just("function"), names, words, schemas)
thinkings = st.one_of(
    st.none(),
    st.builds(
        Thinking,
        st.sampled_from(["minimal", "low", "medium", "high"]),
        show=st.sampled_from(["summary"]),
    ),
)


@st.composite
def turns(draw) -> tuple[Turn, ...]:
    """A conversation that ends with the user's turn; each call has its result."""
    found = [Turn("user", tuple(draw(st.lists(texts | media, min_size=1, max_size=3))))]
    for number in range(draw(st.integers(0, 3))):
        calls = [
            ToolCall(f"c{number}{place}", draw(names), draw(arguments))
            for place in range(draw(st.integers(0, 3)))
        ]
        said = draw(st.lists(texts, min_size=0 if calls else 1, max_size=2))
        answers = [
            ToolResult(call.id, (draw(texts),), call.name, error=draw(st.booleans()))
            for call in calls
        ]
        more = draw(st.lists(texts | media, min_size=0 if answers else 1, max_size=2))
        found += [Turn("assistant", (*said, *calls)), Turn("user", (*answers, *more))]
    return tuple(found)


requests = st.builds(
    Request,
    st.just("generate_content"),
    st.just(False),
    turns(),
    st.lists(texts, max_size=2).map(tuple),
    st.lists(tools, max_size=3, unique_by=lambda tool: tool.name).map(tuple),
    output=st.sampled_from([Output(), Output("json"), Output("schema", {"type": "object"})]),
    thinking=thinkings,
    temperature=st.none() | st.floats(0, 2),
    top_p=st.none() | st.floats(0, 1),
    top_k=st.none() | st.integers(1, 99),
    seed=st.none() | st.integers(-(2**31), 2**31 - 1),
    frequency_penalty=st.none() | st.floats(-2, 2),
    presence_penalty=st.none() | st.floats(-2, 2),
    max_output_tokens=st.none() | st.integers(1, 1 << 20),
    stop=st.lists(words, max_size=5, unique=True).map(tuple),
    n=st.integers(1, 3),
    logprobs=st.none() | st.integers(0, 20),
    tier=st.sampled_from(["", "default", "flex", "priority"]),
)


def bare(request: Request) -> Request:
    """Without what says only where something stood."""
    return replace(
        request,
        asks=(),
        turns=tuple(
            replace(turn, parts=tuple(map(placeless, turn.parts))) for turn in request.turns
        ),
        tools=tuple(replace(tool, path="") for tool in request.tools),
    )


def placeless(part: Part) -> Part:
    return replace(part, path="") if isinstance(part, Media) else part


def snaked(said):
    """The same with names of fields the other way, where the API chooses them."""
    if isinstance(said, list):
        return [snaked(one) for one in said]
    if not isinstance(said, dict):
        return said
    free = ("args", "response", "parametersJsonSchema", "responseJsonSchema")
    return {
        "".join("_" + c.lower() if c.isupper() else c for c in name): inner
        if name in free
        else snaked(inner)
        for name, inner in said.items()
    }


@settings(max_examples=80, deadline=None)
@given(requests, st.sampled_from([None, "any", "none"]))
def test_requests_come_back_through_the_wire_in_either_spelling(request, mode):
    if mode is not None and request.tools:
        request = replace(request, choice=ToolChoice(mode))
    # What other models made is not signed here: signatures would come back as the vendor's own.
    body, made = encoded(request, "gemini-1.5-pro", schemas="json_schema", thinking="effort")
    assert (made.names, made.cut, made.dropped) == ({}, (), ())
    assert bare(decoded(body)) == request
    assert bare(decoded(snaked(body))) == request


@settings(max_examples=50, deadline=None)
@given(requests)
def test_a_prefix_of_a_conversation_is_encoded_as_it_was(request):
    shorter = replace(request, turns=request.turns[:-2])
    if shorter.turns:
        sent, whole = unsigned_contents(shorter), unsigned_contents(request)
        assert sent and sent == whole[: len(sent)]


def unsigned_contents(request: Request) -> list[dict]:
    """The turns that are sent, without signatures, which depend on the turn that is the last."""
    return [
        {**one, "parts": [{**part, "thoughtSignature": None} for part in one["parts"]]}
        for one in encoded(request)[0]["contents"]
    ]


# ---- answers -------------------------------------------------------------------------------------


@st.composite
def slots(draw, choice: int, first: int) -> list[Event]:
    """The events of one choice, whose slots are numbered from ``first`` on."""
    events: list[Event] = []
    kind = ""
    for slot in range(first, first + draw(st.integers(0, 5))):
        kind = draw(
            st.sampled_from(
                [each for each in ("text", "reasoning", "call") if each != kind or each == "call"]
            )
        )
        if kind == "call":
            opened = Opened(slot, "call", choice, id=f"id{slot}", name=draw(names))
            events += [opened, Delta(slot, draw(arguments)), Closed(slot)]
            continue
        events.append(Opened(slot, kind, choice, summary=kind == "reasoning"))
        events += [Delta(slot, said) for said in draw(st.lists(words, min_size=1, max_size=3))]
        events.append(Closed(slot))
    return [*events, Finished(draw(st.sampled_from(["stop", "length"])), choice)]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_streams_come_back_through_the_wire(data):
    events: list[Event] = []
    for choice in range(data.draw(st.integers(1, 2))):
        slots_so_far = sum(isinstance(event, Opened) for event in events)
        events += data.draw(slots(choice, slots_so_far))
    encoder = CODECS.client.open_encoder(CONTEXT)
    sent = encoder.begin() + b"".join(map(encoder.write, events)) + encoder.end(USAGE)
    decoder = CODECS.upstream.open_decoder()
    found = [event for chunk in chunks_of(sent) for event in decoder.read(None, chunk)]
    found += decoder.end()
    for choice in (0, 1):
        assert gathered(found, choice) == gathered(events, choice)


def gathered(events: list[Event], choice: int) -> list:
    """What was said in a choice, wherever it was cut."""
    found: dict[int, list] = {}
    for event in events:
        if isinstance(event, Opened) and event.choice == choice:
            found[event.slot] = [event.kind, event.id, event.name, ""]
        elif isinstance(event, Delta) and event.slot in found:
            found[event.slot][3] += event.text
    last = [event for event in events if isinstance(event, Finished) and event.choice == choice]
    return [*found.values(), *last]


answer_parts = st.lists(
    texts
    | st.builds(Reasoning, words, summary=st.just(True))
    | st.builds(ToolCall, st.just("id"), names, arguments),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(answer_parts, min_size=1, max_size=3))
def test_whole_answers_come_back_through_the_wire(listed):
    choices = tuple(Choice(merged(parts)) for parts in listed)
    assert (
        at_once(
            CODECS.upstream.decode_answer(
                at_once(CODECS.client.encode_answer(choices, USAGE, CONTEXT))
            )
        )
        == choices
    )


def merged(parts: list[Part]) -> tuple[Part, ...]:
    """Neighbours of one kind are one part on the wire's other side."""
    found: list[Part] = []
    for part in parts:
        if found and type(part) is type(found[-1]) and not isinstance(part, ToolCall):
            found[-1] = replace(found[-1], text=found[-1].text + part.text)
        else:
            found.append(part)
    return tuple(found)


states = st.from_regex(r"gw1\.[a-z]{1,8}", fullmatch=True)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["thought", "text", "call"]), states), max_size=8),
    st.booleans(),
)
def test_state_of_others_comes_back_before_the_same_part(listed, keeps_thoughts):
    """A client repeats the parts of a stream, as the SDK gathers them, in its next request."""
    events: list[Event] = []
    wanted: list[str] = []
    for slot, (kind, state) in enumerate(listed):
        if kind == "thought":
            events += [Opened(slot, "reasoning"), Delta(slot, "Hm."), Sealed(slot, state)]
            wanted.append(state)
        elif kind == "call":
            events += [Opened(slot, "call", id=f"id{slot}", name="f")]
            wanted.append(f"id{slot}")
        else:
            events += [Opened(slot, "text"), Delta(slot, f"t{slot}")]
            wanted.append(f"t{slot}")
        events.append(Closed(slot))
    encoder = CODECS.client.open_encoder(CONTEXT)
    sent = encoder.begin() + b"".join(map(encoder.write, [*events, Finished("stop")]))
    chunks = chunks_of(sent + encoder.end(USAGE))
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    if not keeps_thoughts:
        parts = [part for part in parts if not part.get("thought")]
    user = {"parts": [{"text": "?"}]}
    turns = decoded({"contents": [user, {"role": "model", "parts": parts}]}).turns
    found = [identity(part) for turn in turns[1:] for part in turn.parts]
    found = [each for each in found if each != "Hm."]
    if keeps_thoughts:
        assert found == wanted
    # Without its thought a state goes before the texts that may belong to it.
    for of_text in (True, False):
        kept = [each for each in found if each.startswith("t") is of_text]
        assert kept == [each for each in wanted if each.startswith("t") is of_text]


def identity(part: Part) -> str:
    if isinstance(part, Reasoning):
        return part.opaque or part.text
    return part.id if isinstance(part, ToolCall) else part.text


def test_signatures_come_back_to_the_vendor_where_they_were():
    """Through a client that repeats parts in their order, of whatever family."""
    signed = {"functionCall": {"name": "f", "args": {}, "id": "x"}, "thoughtSignature": "AAAA"}
    said = [
        {"text": "Hm.", "thought": True},
        {"text": "a", "thoughtSignature": "BBBB"},
        {"text": "So.", "thought": True},
        signed,
        {"functionCall": {"name": "g", "args": {}, "id": "y"}},
    ]
    body = json.dumps({"candidates": [{"content": {"parts": said}, "finishReason": "STOP"}]})
    (choice,) = at_once(CODECS.upstream.decode_answer(body.encode()))
    request = Request("x", False, (Turn("user", (Text("?"),)), Turn("assistant", choice.parts)))
    found = encoded(request)[0]["contents"][1]["parts"]
    assert found == [part for part in said if not part.get("thought")]
    assert sealed("text", "BBBB") in [getattr(part, "opaque", "") for part in choice.parts]

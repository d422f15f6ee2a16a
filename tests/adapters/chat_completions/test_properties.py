"""Random requests, answers and streams: encoded and decoded again they are the same."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.ir.answer import Choice, Closed, Delta, Event, Finished, Opened
from adapters.ir.parts import Media, Reasoning, Refusal, Text, ToolCall
from adapters.ir.request import Request
from adapters.json.structure import at_once
from store.values.usage import Usage
from tests.adapters.builders import slot
from tests.adapters.chat_completions.calls import (
    CONTEXT,
    assistant,
    custom_call,
    decoded,
    encoded,
    function_call,
    function_tool,
    read_stream,
    tool_result,
    user,
    written,
)

CODECS = CODECS_BY_FAMILY["chat_completions"]

EVERYTHING = {
    "openai_extras": True,
    "custom_tools": True,
    "verbosity": True,
    "audio": True,
    "search": True,
    "reasoning_echo": True,
}

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
names = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
schemas = st.dictionaries(texts, json_values, max_size=3)
arguments = st.dictionaries(texts, json_values, max_size=2).map(json.dumps)
base64_texts = st.sampled_from(["AAAA", "-_8=", "QUI", "+/8="])


def optional(**fields):
    return st.fixed_dictionaries({}, optional=fields)


def image(url, **fields):
    return {"type": "image_url", "image_url": {"url": url, **fields}}


def image_data(data, detail):
    return image(f"data:image/png;base64,{data}", detail=detail)


def sound(data, form):
    return {"type": "input_audio", "input_audio": {"data": data, "format": form}}


def pdf(data, name):
    file = {"file_data": f"data:application/pdf;base64,{data}", "filename": name}
    return {"type": "file", "file": file}


content_parts = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(image_data, base64_texts, st.sampled_from(["low", "high"])),
    st.just(image("https://x.example/a.png")),
    st.builds(sound, base64_texts, st.sampled_from(["wav", "mp3"])),
    st.builds(pdf, base64_texts, texts),
)
user_messages = st.builds(user, texts | st.lists(content_parts, min_size=1, max_size=3))


@st.composite
def conversations(draw):
    """Draw messages as a client writes them; all calls have results, in any order."""
    # Vendors produce JSON only if a message contains the word.
    messages = [{"role": "system", "content": "JSON: " + draw(texts)}, draw(user_messages)]
    for turn in range(draw(st.integers(0, 3))):
        spoken = draw(
            optional(content=texts, refusal=texts, reasoning_content=texts, tool_calls=st.just([]))
        )
        call_of = draw(st.sampled_from([function_call, custom_call]))
        calls = [
            call_of(f"c{turn}.{index}", draw(names), draw(arguments))
            for index in range(draw(st.integers(0, 3)))
        ]
        if calls:
            spoken["tool_calls"] = calls
        elif not {"content", "refusal"} & set(spoken):
            spoken["content"] = draw(texts)
        messages.append(assistant(**spoken))
        for call in draw(st.permutations(calls)):
            messages.append(tool_result(call["id"], draw(texts)))
        if draw(st.booleans()):
            messages.append({"role": "system", "content": draw(texts)})
        messages.append(draw(user_messages))
    return messages


functions = st.fixed_dictionaries(
    {"name": names}, optional={"description": texts, "parameters": schemas, "strict": st.booleans()}
)
tools = st.lists(
    st.one_of(
        functions.map(lambda function: function_tool(**function)),
        st.builds(lambda name: {"type": "custom", "custom": {"name": name}}, names),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda tool: tool[tool["type"]]["name"],
)
json_schemas = st.builds(
    lambda name, schema: {"name": name, "schema": schema, "strict": True}, names, schemas
)
fields = optional(
    temperature=st.floats(0, 2),
    top_p=st.floats(0, 1),
    frequency_penalty=st.floats(-2, 2),
    presence_penalty=st.integers(-2, 2),
    seed=st.integers(-(2**63), 2**63 - 1),
    logit_bias=st.dictionaries(st.just("50256"), st.integers(-100, 100), min_size=1),
    n=st.integers(1, 4),
    stop=texts | st.lists(texts, min_size=1, max_size=4),
    max_tokens=st.integers(1, 10**6),
    logprobs=st.just(True),
    top_logprobs=st.integers(0, 20),
    reasoning_effort=st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh", "max"]),
    verbosity=st.sampled_from(["low", "medium", "high"]),
    service_tier=st.sampled_from(["auto", "default", "flex", "priority"]),
    user=texts,
    prompt_cache_key=texts,
    web_search_options=st.just({}),
    parallel_tool_calls=st.booleans(),
    tool_choice=st.sampled_from(["auto", "none", "required"]),
    tools=tools,
    response_format=st.sampled_from([{"type": "text"}, {"type": "json_object"}])
    | json_schemas.map(lambda schema: {"type": "json_schema", "json_schema": schema}),
)


def carried(request: Request) -> Request:
    """Return the request without what is lost on the way to an upstream."""

    def part(each):
        return replace(each, path="") if isinstance(each, Media) else each

    turns = tuple(replace(turn, parts=tuple(map(part, turn.parts))) for turn in request.turns)
    # Without tools the choice of tools is not sent.
    called = any(tool.kind != "hosted" for tool in request.tools)
    return replace(
        request,
        asks=(),
        turns=turns,
        tools=tuple(replace(tool, path="") for tool in request.tools),
        choice=request.choice if called else None,
        parallel_tools=request.parallel_tools if called else None,
        include_usage=True,
    )


@settings(max_examples=100, deadline=None)
@given(conversations(), fields, st.booleans())
def test_requests(messages, fields, stream):
    request = decoded(messages, stream, **fields)
    body, made = encoded(request, **EVERYTHING)
    again = decoded(body.pop("messages"), body.pop("stream", False), **body)
    assert carried(again) == carried(request)
    assert made.names == {} and made.cut == () and made.dropped == ()
    assert encoded(again, **EVERYTHING)[1].body == made.body


calls = st.builds(ToolCall, st.just(""), names, arguments, st.booleans())


@st.composite
def choices(draw):
    """Draw parts in the order of this family: one of each kind, then calls."""
    kinds = [st.builds(Reasoning, texts), st.builds(Text, texts), st.builds(Refusal, texts)]
    parts = [draw(kind) for kind in kinds if draw(st.booleans())]
    for index, call in enumerate(draw(st.lists(calls, max_size=3))):
        parts.append(replace(call, id=f"c{index}"))
    return Choice(tuple(parts), draw(st.sampled_from(["stop", "length", "tools", "filter"])))


@settings(max_examples=100, deadline=None)
@given(st.lists(choices(), min_size=1, max_size=3))
def test_answers(said):
    body = at_once(CODECS.client.encode_answer(tuple(said), Usage(), CONTEXT))
    assert at_once(CODECS.upstream.decode_answer(body)) == tuple(said)


@st.composite
def streams(draw):
    """Draw events of a stream, whose slots of calls may be interleaved."""
    events: list[Event] = []
    number = 0
    for kind in ("reasoning", "text", "refusal"):
        if draw(st.booleans()):
            events += slot(number, kind, *draw(st.lists(texts, min_size=1, max_size=3)))
            number += 1
    cut = draw(st.integers(1, 6))
    mixed: list[list[Event]] = []
    for index, call in enumerate(draw(st.lists(calls, max_size=3))):
        said = call.arguments
        pieces = [said[at : at + cut] for at in range(0, len(said), cut)]
        fields = {"id": f"c{index}", "name": call.name, "custom": call.custom}
        mixed.append(slot(number + index, "call", *pieces, **fields))
    if draw(st.booleans()):
        events += [each[0] for each in mixed]
        events += [event for each in mixed for event in each[1:-1]]
        events += [each[-1] for each in mixed]
    else:
        events += [event for each in mixed for event in each]
    return [*events, Finished(draw(st.sampled_from(["stop", "length", "tools", "filter"])))]


def together(events):
    """Return each slot with its whole text, in the order in which they were opened, and the
    finishes."""
    slots = {event.slot: [event, ""] for event in events if isinstance(event, Opened)}
    for event in events:
        if isinstance(event, Delta):
            slots[event.slot][1] += event.text
    assert sorted(slots) == sorted(event.slot for event in events if isinstance(event, Closed))
    return list(slots.values()), [event for event in events if isinstance(event, Finished)]


@settings(max_examples=100, deadline=None)
@given(streams())
def test_streams(events):
    assert together(read_stream(written(events))) == together(events)

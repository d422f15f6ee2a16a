"""Requests of clients of other families, translated: a strict vendor accepts all of them."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.codecs import CODECS
from adapters.family.codec import Target
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.ir.parts import Hosted, Media, Reasoning, Refusal, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Output, Request, Thinking, Tool, ToolChoice
from adapters.json.structure import at_once
from adapters.messages.parts import sealed_thought
from demo.messages import sign_thought
from tests.vendor import chat_request, messages_request

words = st.sampled_from(["", " ", "Tea", "a.b", "x" * 70, "é", "json", "ns__f"])
names = words.filter(str.strip)
ids = st.sampled_from(["", "c1", "c2", "functions.x:0", "c" * 80])
objects = st.sampled_from(["", "{}", '{"port":"Brest"}', "[1]", "no json"])
schemas = st.sampled_from([None, {}, {"type": "object", "properties": {"x": {"type": "string"}}}])

texts = st.builds(Text, words)
media = st.sampled_from(
    [
        Media("image", "image/png", "AAAA", detail="high"),
        Media("image", url="https://x.example/a.png", detail="auto"),
        Media("audio", "audio/mp3", "AAAA"),
        Media("file", "application/pdf", "JVBE"),
        Media("file", "text/plain", "# Tea", plain=True),
    ]
)
results = st.builds(
    ToolResult, ids, st.lists(texts | media, max_size=3).map(tuple), words, st.booleans()
)
signed = st.just(Reasoning("hm", opaque=sealed_thought("hm", sign_thought("hm"))))
said = texts | st.builds(Refusal, words) | st.builds(Reasoning, words, opaque=words) | signed
calls = st.builds(ToolCall, ids, names, objects, st.booleans())
hosted = st.just(Hosted("web_search_call", {}))


def turn(role, parts):
    return st.builds(Turn, st.just(role), st.lists(parts, max_size=4).map(tuple))


turns = st.lists(
    turn("user", texts | media | results)
    | turn("assistant", said | calls | hosted)
    | turn("system", texts),
    max_size=6,
).map(tuple)
tools = st.lists(
    st.builds(
        Tool,
        st.sampled_from(["function", "custom", "hosted"]),
        names,
        words,
        schemas,
        st.sampled_from([None, False]),
        st.sampled_from(["", "ns"]),
    ),
    max_size=4,
    unique_by=lambda tool: (tool.namespace, tool.name),
).map(tuple)
choices = st.none() | st.builds(
    ToolChoice, st.sampled_from(["auto", "none", "any", "one"]), st.tuples(names)
)
outputs = st.builds(
    Output,
    st.sampled_from(["text", "json", "schema"]),
    st.just({"type": "object", "properties": {}}),
    words,
    words,
)
thoughts = st.none() | st.builds(
    Thinking,
    st.sampled_from([None, "off", "minimal", "max", "auto"]),
    st.none() | st.integers(-1, 60_000),
)
requests = st.builds(
    Request,
    st.just("messages"),
    st.booleans(),
    turns,
    st.lists(texts, max_size=2).map(tuple),
    tools,
    choices,
    parallel_tools=st.none() | st.booleans(),
    output=outputs,
    verbosity=st.sampled_from(["", "low", "high"]),
    thinking=thoughts,
    temperature=st.none() | st.floats(0, 2),
    max_output_tokens=st.none() | st.integers(1, 9000),
    stop=st.lists(names, max_size=6).map(tuple),
    n=st.integers(1, 3),
    logprobs=st.none() | st.integers(0, 20),
    end_user=words,
    tier=st.sampled_from(["", "auto", "default", "flex", "priority"]),
    cache_key=words,
)

chat_traits = st.builds(
    Traits,
    audio=st.just(True),
    sampling=st.booleans(),
    structured=st.sampled_from(["schema", "tool"]),
    system_role=st.sampled_from(["system", "developer"]),
    token_bound=st.sampled_from(["max_tokens", "max_completion_tokens"]),
    reasoning_echo=st.booleans(),
    thinking_parts=st.just(False),  # only Mistral accepts them
    openai_extras=st.booleans(),
    custom_tools=st.booleans(),
    effort_with_tools=st.booleans(),
    verbosity=st.booleans(),
)
messages_traits = st.builds(
    Traits, thinking=st.sampled_from(["budget", "adaptive"]), auto_cache=st.booleans()
)


def sent(family, request, traits, count=False):
    target = Target("demo", "up", traits)
    return json.loads(at_once(CODECS[family].upstream.encode_request(request, target, count)).body)


@settings(max_examples=250, deadline=None)
@given(requests, chat_traits)
def test_chat_completions(request, traits):
    body = sent("chat_completions", request, traits)
    if body["messages"]:  # a request without text cannot be made valid
        chat_request.check_request(body)


@settings(max_examples=150, deadline=None)
@given(requests, messages_traits, st.booleans())
def test_messages(request, traits, count):
    if request.choice and request.choice.names:  # a name of no tool is passed to the vendor
        request = replace(request, choice=ToolChoice("any"))
    try:
        body = sent("messages", request, traits, count)
    except Fault as fault:  # for audio, which the family does not have
        assert fault.condition is Condition.UNSUPPORTED
        return
    if body["messages"]:
        messages_request.check_request(body, "2023-06-01", counting=count)

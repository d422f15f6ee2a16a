"""Lists and texts of clients that are searched or matched: the work is linear in the request's
size.

Searching one list for each element of another would take many times the time limits here; the time
really needed is far below them.
"""

import time

import pytest

from adapters.chat_completions.reasoning_state import ReasoningPieces
from adapters.codecs import CODECS
from adapters.family.codec import Encoded, Target
from adapters.family.opaque import Origin
from adapters.family.traits import Traits
from adapters.faults import Condition
from adapters.generate_content.encode_request import MAX_REFERENCES, SchemaBudget, to_subset
from adapters.generate_content.encode_turns import ContentWriter, ToolNames
from adapters.ir.answer import Delta, Opened
from adapters.ir.parts import Reasoning, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Request, Tool, ToolChoice
from adapters.json.structure import at_once
from adapters.restore import Restorer
from tests.adapters.builders import fault_of

MANY = 20_000
SECONDS = 5.0
USER = Turn("user", (Text("Go."),))


def encoded(family, *turns, **fields):
    """Return the body for an upstream of a family."""
    request = Request("other", False, turns or (USER,), **fields)
    target = Target("demo", "model", Traits(system_turns=True))
    return at_once(CODECS[family].upstream.encode_request(request, target, False)).body


def taken_s(work):
    began_s = time.thread_time()
    work()
    return time.thread_time() - began_s


@pytest.mark.parametrize("family", CODECS)
@pytest.mark.parametrize("mode", ["auto", "any"])
def test_names_of_tools_that_may_be_called(family, mode):
    names = [f"tool_{at}" for at in range(MANY)]
    tools = tuple(Tool("function", name) for name in names)
    choice = ToolChoice(mode, tuple(reversed(names)))
    assert taken_s(lambda: encoded(family, tools=tools, choice=choice)) < SECONDS


@pytest.mark.parametrize("family", CODECS)
def test_one_name_many_times_for_tools_of_many_namespaces(family):
    tools = tuple(Tool("function", "tool", namespace=f"n{at}") for at in range(1000))
    choice = ToolChoice("any", ("tool",) * 1000)
    assert len(encoded(family, tools=tools, choice=choice)) < 1_000_000


@pytest.mark.parametrize("family", CODECS)
@pytest.mark.parametrize(
    "ids", [[f"id{at}" for at in range(2 * MANY)], ["id"] * 2 * MANY], ids=["many", "one"]
)
def test_calls_and_their_results_under_many_ids_or_one(family, ids):
    calls = Turn("assistant", tuple(ToolCall(given, "tool", "{}") for given in ids))
    results = Turn("user", tuple(ToolResult(given, (Text("It is."),)) for given in ids))
    systems = (Turn("system", (Text("Go on."),)),) * len(ids)
    assert taken_s(lambda: encoded(family, USER, calls, results, *systems)) < SECONDS


def test_signatures_before_their_calls():
    """As many as a body of 32 MiB can contain: their list is not shifted for each one."""
    parts = [Reasoning("", opaque="call:c")] * 12 * MANY + [
        ToolCall("id", "tool", "{}")
    ] * 12 * MANY
    writer = ContentWriter(ToolNames(()), signs=True)
    assert taken_s(lambda: writer.add(Turn("assistant", tuple(parts)))) < SECONDS
    [_, content] = writer.finish([])[:2]
    assert sum("thoughtSignature" in part for part in content["parts"]) == 12 * MANY


def test_places_that_overlap_do_not_multiply_the_text():
    text = "word " * 1000
    pieces = " ".join(f"o{at}/{at}:{len(text)}" for at in range(1000))
    read = ReasoningPieces(text).read(pieces)
    assert sum(len(one.text) for one in read) <= len(text)
    assert [one.opaque for one in read] == [f"o{at}" for at in range(1000)]


@pytest.mark.parametrize(
    "definition",
    [
        {"type": "string", "enum": [f"v{at}" for at in range(MANY)]},
        {"type": "string", **{f"unknown{at}": 1 for at in range(MANY)}},
    ],
    ids=["values", "keys"],
)
def test_references_to_a_long_definition(definition):
    schema = {
        "type": "object",
        "properties": {f"p{at}": {"$ref": "#/$defs/long"} for at in range(MANY // 2)},
        "$defs": {"long": definition},
    }
    check_refused(schema, "too large")


@pytest.mark.parametrize("through", [lambda ref: ref, lambda ref: {"allOf": [ref]}])
def test_references_to_references(through):
    leads = {f"d{at}": through({"$ref": f"#/$defs/d{at + 1}"}) for at in range(MANY)}
    check_refused({"$ref": "#/$defs/d0", "$defs": leads}, "nested too deeply")
    few = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(MAX_REFERENCES - 1)}
    few[f"d{MAX_REFERENCES - 1}"] = {"type": "string"}
    made = to_subset({"$ref": "#/$defs/d0", "$defs": few}, "tools[0]", SchemaBudget())
    assert made == {"type": "STRING"}


def check_refused(schema, why):
    began_s = time.thread_time()
    fault = fault_of(to_subset, schema, "tools[0]", SchemaBudget())
    assert time.thread_time() - began_s < SECONDS
    assert (fault.condition, fault.param) == (Condition.INVALID_FIELD, "tools[0]")
    assert why in fault.message


def test_stop_sequences_that_nearly_stand_in_the_text():
    """The first holds back the text of 255 deltas; the others could start anywhere in it, and do
    not."""
    stops = ("a" * 255 + "!", *(chr(ord("b") + at) + "a" * 255 for at in range(15)))
    restorer = Restorer(
        Encoded(b"", cut=stops), Origin("messages", "mark", b"k" * 32, "user"), "A1"
    )
    restorer.events([Opened(0, "text")])
    events = [Delta(0, "a")] * MANY
    sent = []
    assert taken_s(lambda: sent.extend(restorer.events(events))) < SECONDS
    assert len(sent) == MANY - 255

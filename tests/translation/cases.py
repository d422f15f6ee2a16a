"""The cases of the matrix: what a user of an SDK asks, and what the answer must be.

Each is a function of a `Cell`; its name is the case's name in docs/conversions.md. NOT_ASKED says
which clients cannot ask for a case, and which cases are of one mode only.
"""

import itertools
import json
from decimal import Decimal

import pytest

from tests.sdk.world import counts_of
from tests.translation.talk import KETTLE, TOOLS, Model, Result, User, Want
from tests.translation.world import CLIENTS

C, R, M, G = "chat_completions", "responses", "messages", "generate_content"
BOTH = "Please call get_weather and get_tide"
THOUGHTS = "The demo has nothing to look up. A short friendly answer will do."
DUMMY = {"harbour": "demo", "day": 7}
GOLDEN = "[[demo tokens=2600,2000,400,150,60]]"

# the finish reasons in each client's family
STOP = {C: "stop", R: "completed", M: "end_turn", G: "STOP"}
LENGTH = {C: "length", R: "max_output_tokens", M: "max_tokens", G: "MAX_TOKENS"}
CALLED = {C: "tool_calls", R: "completed", M: "tool_use", G: "STOP"}
# the form of opaque state in a request to each upstream's family
STATE = {R: '"encrypted_content":"', M: '"signature":"', G: '"thoughtSignature":"'}

_words = itertools.count()


def _word() -> str:
    """Return a unique word, by which the vendor's request is found."""
    return f"word-{next(_words)}-of-the-matrix"


def _want(cell, text, **more):
    return Want(cell.model, (User(text),), **more)


def _names(seen):
    return [call.name for call in seen.calls]


def text(cell):
    seen = cell.ask(_want(cell, "Is tea ready?"))
    assert "You wrote: “Is tea ready?”" in seen.text
    assert (seen.finish, seen.calls, seen.refused) == (STOP[cell.client], [], False)
    assert seen.text.count("Hello from the built-in demo") == 1


def multi_turn(cell):
    word = _word()
    turns = (User("One"), Model(f"Two {word}"), User("And a third?"))
    seen = cell.ask(Want(cell.model, turns))
    assert "You wrote: “And a third?”" in seen.text
    sent = json.loads(cell.sent(word))
    said = next(sent[name] for name in ("messages", "input", "contents") if name in sent)
    roles = [turn["role"] for turn in said]
    assert roles == ["user", "model" if cell.upstream == G else "assistant", "user"]


def system(cell):
    word = _word()
    seen = cell.ask(_want(cell, "Hello", system=f"Be brief, {word}"))
    assert word not in seen.text
    sent = json.loads(cell.sent(word))
    place = {
        C: lambda: sent["messages"][0]["role"] in ("system", "developer"),
        R: lambda: word in json.dumps([sent.get("instructions"), sent["input"][0]]),
        M: lambda: word in json.dumps(sent["system"]),
        G: lambda: (
            word in json.dumps(sent.get("systemInstruction", sent.get("system_instruction")))
        ),
    }
    assert place[cell.upstream]()


def image(cell):
    seen = cell.ask(Want(cell.model, (User("What is this?", image=True),)))
    assert "I was shown 1 image." in seen.text


def parallel_tools(cell):
    seen = cell.ask(_want(cell, BOTH, tools=True))
    assert _names(seen) == list(TOOLS)
    assert [call.arguments for call in seen.calls] == [DUMMY, DUMMY]
    assert len({call.id for call in seen.calls}) == 2 or cell.client == G
    assert seen.finish == CALLED[cell.client]


def tool_error(cell):
    first = Want(cell.model, (User(BOTH),), tools=True)
    seen = cell.ask(first)
    fine, lost = seen.calls
    word = _word()
    results = [Result(fine, "sunny"), Result(lost, f"the buoy is lost {word}", error=True)]
    done = cell.ask(Want(cell.model, (*first.turns, seen, results), tools=True))
    assert "the tool results have arrived" in done.text
    assert done.finish == STOP[cell.client]
    if cell.client in (M, G):  # the others have no field for it
        mark = {C: "Error: ", R: "Error: ", M: '"is_error":true', G: '"error":'}
        assert mark[cell.upstream] in cell.sent(word).replace('": ', '":')


def forced_tool(cell):
    seen = cell.ask(_want(cell, "Hello", tools=True, force="get_tide"))
    assert _names(seen) == ["get_tide"]
    assert seen.calls[0].arguments == DUMMY


def structured_output(cell):
    seen = cell.ask(_want(cell, "A kettle, please", schema=True))
    answer = json.loads(seen.text)
    assert answer == {"name": "demo", "cups": 7}
    assert set(answer) == set(KETTLE["required"])
    assert (seen.finish, seen.calls) == (STOP[cell.client], [])


def reasoning(cell):
    word = _word()
    first = Want(cell.model, (User(f"{BOTH} {word}"),), tools=True, thinking=True)
    seen = cell.ask(first)
    assert seen.thoughts == THOUGHTS
    assert _names(seen) == list(TOOLS)
    results = [Result(call, "sunny") for call in seen.calls]
    done = cell.ask(Want(cell.model, (*first.turns, seen, results), tools=True, thinking=True))
    assert "the tool results have arrived" in done.text
    if cell.upstream in STATE:  # the vendor has checked that the state is its own
        sent = cell.sent(word).replace('": ', '":').replace("thought_signature", "thoughtSignature")
        assert STATE[cell.upstream] in sent


def stop(cell):
    seen = cell.ask(_want(cell, "Hello", stop="gateway"))
    assert seen.text.endswith("Your ")
    # Not every upstream reports that a stop sequence ended it.
    expected = {M: ("stop_sequence", "end_turn")}.get(cell.client, (STOP[cell.client],))
    assert seen.finish in expected
    if cell.client == M and cell.upstream in (M, R):
        assert (seen.finish, seen.stop) == ("stop_sequence", "gateway")


def length(cell):
    seen = cell.ask(_want(cell, "Hello", limit=16))
    assert seen.finish == LENGTH[cell.client]
    assert seen.text
    assert seen.usage[3] == 16


def cached_usage(cell):
    """The same call costs what its upstream reports, whichever client asks; generate-content does
    not report cache writes separately, and counts them as input."""
    seen = cell.ask(_want(cell, f"Hello {GOLDEN}"))
    record = cell.record(seen.request_id)
    written = 0 if cell.upstream == G else 400
    counts = {"input": 600 - written, "cache_read": 2000, "cache_write": written}
    counts |= {"output": 90, "reasoning": 60}
    assert counts_of(record) == {name: count for name, count in counts.items() if count}
    assert Decimal(record["cost"]) == (Decimal("0.0034") if written == 0 else Decimal("0.0036"))
    said = (2600, 2000, written, 150, 60)
    # What a family has no field for is not reported.
    assert tuple(mine for mine in seen.usage if mine is not None) == tuple(
        theirs for mine, theirs in zip(seen.usage, said, strict=True) if mine is not None
    )


def refusal(cell):
    seen = cell.ask(_want(cell, "Hello [[demo refusal]]"))
    assert seen.refused
    if cell.client == cell.upstream == C:
        assert seen.native["refusal"].startswith("I am sorry")


def _fails(cell, words, outcome, code):
    """Make a call that ends in the client's exception and is recorded as failed; return the
    exception."""
    want = Want(cell.world.failing(cell.upstream), (User(f"Hello {words}"),))
    with pytest.raises(CLIENTS[cell.client].ERROR) as caught:
        cell.world.clients[cell.client].ask(want, stream=cell.stream)
    record = cell.failed_record()
    assert (record["outcome"], record["error_code"]) == (outcome, code)
    return caught.value


def error_before(cell):
    error = _fails(cell, "[[demo status=503]]", "upstream_error", "upstream_overloaded")
    status = {M: 529}.get(cell.client, 503)
    assert getattr(error, "status_code", getattr(error, "code", None)) == status


def error_midstream(cell):
    # The vendors' statuses 529 and UNAVAILABLE mean this; the others name no kind.
    code = "upstream_overloaded" if cell.upstream in (M, G) else "upstream_error"
    _fails(cell, "[[demo error_event=6 code=server_error]]", "upstream_error", code)


def truncated(cell):
    if cell.stream:
        _fails(cell, "[[demo cut=6]]", "upstream_truncated", "upstream_truncated")
    else:
        _fails(cell, "[[demo cut=40]]", "upstream_error", "upstream_error")


CASES = {
    case.__name__: case
    for case in (
        text, multi_turn, system, image, parallel_tools, tool_error, forced_tool,
        structured_output, reasoning, stop, length, cached_usage, refusal, error_before,
        error_midstream, truncated,
    )
}  # fmt: skip


def thinking_asked(cell):
    """At a model that may not think at all: what it cannot do is left out."""
    first = Want(cell.model, (User(BOTH),), tools=True, thinking=True)
    seen = cell.ask(first)
    results = [Result(call, "sunny") for call in seen.calls]
    done = cell.ask(Want(cell.model, (*first.turns, seen, results), tools=True, thinking=True))
    assert "the tool results have arrived" in done.text
    assert seen.thoughts in ("", THOUGHTS)


def temperature(cell):
    seen = cell.ask(_want(cell, "Is tea ready?", temperature=0.5))
    assert "You wrote: “Is tea ready?”" in seen.text


def not_asked(case: str, client: str, stream: bool) -> bool:
    """Return True if there is no such case: responses have no stop sequences, and a plain answer
    comes in one piece."""
    return (case == "stop" and client == R) or (case == "error_midstream" and not stream)

"""Cache marks for upstreams of the messages family."""

from adapters.ir.parts import CacheMark, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Tool
from tests.adapters.messages.calls import asking, sent

MARK = {"type": "ephemeral"}
TIDE = Tool("function", "tide")
TALK = (
    Turn("user", (Text("a"),)),
    Turn("assistant", (Text("b"), ToolCall("1", "tide", "{}"))),
    Turn("user", (ToolResult("1", (Text("c"),)), Text("d"))),
)


def marked(body):
    """Where marks stand."""
    places = [("tools", body.get("tools", ())), ("system", body.get("system", ()))]
    places += [(f"messages[{at}]", each["content"]) for at, each in enumerate(body["messages"])]
    return [
        f"{name}[{at}]"
        for name, blocks in places
        for at, block in enumerate(blocks)
        if "cache_control" in block
    ]


def test_what_the_next_call_begins_with_is_marked():
    request = asking(*TALK, tools=(TIDE, Tool("function", "wind")), system=(Text("s"), Text("t")))
    body, _ = sent(request, auto_cache=True)
    assert marked(body) == ["tools[1]", "system[1]", "messages[2][1]"]
    assert body["tools"][1]["cache_control"] == MARK
    assert marked(sent(request)[0]) == []


def test_a_single_question_is_not():
    assert marked(sent(asking(system=(Text("s"),)), auto_cache=True)[0]) == []
    assert marked(sent(asking(tools=(TIDE,)), auto_cache=True)[0]) == ["tools[0]", "messages[0][0]"]


def test_marks_of_the_client_are_enough():
    request = asking(*TALK, tools=(TIDE,), system=(Text("s", CacheMark(3600)),))
    body, _ = sent(request, auto_cache=True)
    assert marked(body) == ["system[0]"]
    assert body["system"][0]["cache_control"] == MARK | {"ttl": "1h"}


def test_four_at_most():
    texts = tuple(Text(f"{at}", CacheMark()) for at in range(6))
    system = (Text("s", CacheMark()), Text("t", CacheMark()))
    tool = Tool("function", "tide", cache=CacheMark())
    body, _ = sent(asking(Turn("user", texts), system=system, tools=(tool,)))
    assert marked(body) == ["system[1]", "messages[0][3]", "messages[0][4]", "messages[0][5]"]
    body, _ = sent(asking(Turn("user", texts)))
    assert marked(body) == [f"messages[0][{at}]" for at in range(2, 6)]

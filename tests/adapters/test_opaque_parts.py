"""What becomes of opaque state in a history on its way to an upstream."""

from adapters.ir.parts import Reasoning, Text, Turn
from adapters.ir.request import Request
from adapters.opaque import Origin, wrap
from adapters.opaque_parts import is_sealed, restored, unsealed

ORIGIN = Origin("messages", "mark", b"k" * 32, "user")
OTHER = Origin("responses", "mark", b"k" * 32, "user")


def request(*parts, role="assistant"):
    return Request("chat_completions", False, (Turn("user", (Text("Who?"),)), Turn(role, parts)))


def test_own_state_is_unwrapped_and_any_other_goes():
    own, other = wrap("own", ORIGIN), wrap("other", OTHER)
    thoughts = [Reasoning("hm", opaque=one) for one in (own, other, "native", "")]
    for role in ("assistant", "user"):
        _, turn = restored(request(*thoughts, Text("Me."), role=role), ORIGIN).turns
        assert [part.opaque for part in turn.parts[:-1]] == ["own", "", "", ""]
        assert [part.text for part in turn.parts] == ["hm"] * 4 + ["Me."]


def test_a_turn_without_state_is_the_same_object():
    asked = request(Reasoning("hm"), Text("Me."))
    assert restored(asked, ORIGIN).turns[1] is asked.turns[1]
    assert unsealed(asked).turns[1] is asked.turns[1]


def test_all_state_can_be_left_out():
    asked = request(Reasoning("hm", opaque="s"), Text("Me."))
    assert is_sealed(asked) and not is_sealed(unsealed(asked))
    assert unsealed(asked).turns[1].parts == (Reasoning("hm"), Text("Me."))

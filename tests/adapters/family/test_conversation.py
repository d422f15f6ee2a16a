"""Identity of a conversation: the same in all its turns, different from others; never a fault, at
low cost."""

import json

import pytest

from adapters.family.conversation import ENDS_CHARS, MAX_TURNS, WINDOWS_BYTES
from adapters.json.jsonio import top_level
from adapters.registry import FAMILIES

FIRST = "How do I bake bread?"
MORE = [("assistant", "With flour."), ("user", "And then?")]
LONG = "word " * 6_000
HUGE = "word " * 60_000
EACH = pytest.mark.parametrize("family", FAMILIES)


def turns_of(family, turns):
    if family == "generate_content":
        names = {"assistant": "model"}
        return [{"role": names.get(r, r), "parts": [{"text": text}]} for r, text in turns]
    return [{"role": role, "content": text} for role, text in turns]


LISTS = {"generate_content": "contents", "responses": "input"}
SYSTEMS = {"generate_content": "systemInstruction", "responses": "instructions"}


def body_of(family, turns, system=None, **more):
    if family == "chat_completions" and system is not None:
        turns = [("system", system), *turns]
    body = {"model": "m", LISTS.get(family, "messages"): turns_of(family, turns)}
    if system is not None and family != "chat_completions":
        said = {"parts": [{"text": system}]} if family == "generate_content" else system
        body[SYSTEMS.get(family, "system")] = said
    return {**body, **more}


def name_of(family, body, **form):
    data = body if isinstance(body, bytes) else json.dumps(body, **form).encode()
    return FAMILIES[family].client.conversation(top_level(data))


def of_turns(family, *turns, **more):
    return name_of(family, body_of(family, turns, **more))


@EACH
@pytest.mark.parametrize("system", [None, "Be brief.", LONG])
@pytest.mark.parametrize("first", [FIRST, LONG, "ß" * 5000, HUGE])
def test_later_turns_change_nothing(family, system, first):
    once = of_turns(family, ("user", first), system=system)
    assert once and len(once) < 20 * ENDS_CHARS
    for count in (1, 2):
        assert of_turns(family, ("user", first), *MORE * count, system=system) == once
    long = ("assistant", LONG)
    assert of_turns(family, ("user", first), long, *MORE, system=system) == once


@EACH
def test_another_beginning_is_another_conversation(family):
    names = {
        of_turns(family, ("user", FIRST)),
        of_turns(family, ("user", FIRST + " ")),
        of_turns(family, ("user", LONG)),
        of_turns(family, ("user", LONG + "x")),
        of_turns(family, ("user", HUGE)),
        of_turns(family, ("user", "x" + HUGE)),
        of_turns(family, ("user", FIRST), system="Be brief."),
        of_turns(family, ("user", FIRST), system="Be long."),
        of_turns(family, ("user", "y"), ("user", FIRST)),
        of_turns(family, ("assistant", "Hello."), ("user", FIRST)),
    }
    assert len(names) == 10


@EACH
def test_tools_and_bounds_say_nothing(family):
    plain = of_turns(family, ("user", FIRST))
    more = {"tools": [{"name": "t"}], "temperature": 1, "stream": True, "max_tokens": 5}
    assert of_turns(family, ("user", FIRST), **more) == plain


@EACH
def test_a_text_is_the_same_in_whatever_it_is_packed(family):
    plain = name_of(family, body_of(family, [("user", FIRST), *MORE]))
    assert plain == name_of(family, body_of(family, [("user", FIRST), *MORE]), indent=2)
    body = body_of(family, [("user", FIRST), *MORE])
    turns = body[LISTS.get(family, "messages")]
    part = {"type": "text", "text": FIRST, "cache_control": {"type": "ephemeral"}}
    turns[0] = {"role": "user", "content": [part], "id": "msg_1", "status": "completed"}
    assert name_of(family, body) == plain


@EACH
def test_pictures_tell_conversations_apart(family):
    def of_picture(data):
        part = {"type": "image", "source": {"type": "base64", "data": data}}
        body = body_of(family, [])
        body[LISTS.get(family, "messages")] = [{"role": "user", "content": [part]}]
        return name_of(family, body)

    assert len({of_picture("A" * 9000), of_picture("B" * 9000), of_picture("C" * 300_000)}) == 3
    assert len(of_picture("C" * 300_000)) < 4 * ENDS_CHARS


@pytest.mark.parametrize(
    ("family", "given"),
    [
        ("chat_completions", {"prompt_cache_key": "K"}),
        ("responses", {"prompt_cache_key": "K"}),
        ("responses", {"conversation": "K"}),
        ("responses", {"conversation": {"id": "K"}}),
        ("messages", {"metadata": {"user_id": "K"}}),
        ("generate_content", {"cachedContent": "K"}),
        ("generate_content", {"cached_content": "K"}),
    ],
)
def test_the_clients_own_name_of_it_comes_first(family, given):
    assert of_turns(family, ("user", FIRST), **given) == b"K"
    assert of_turns(family, ("user", "something else"), system="x", **given) == b"K"


def test_of_a_very_long_name_the_ends_are_taken():
    names = {of_turns("responses", prompt_cache_key=LONG + end) for end in "ab"}
    assert len(names) == 2 and all(len(name) < 3 * ENDS_CHARS for name in names)


@pytest.mark.parametrize(
    ("family", "given"),
    [
        ("chat_completions", {"prompt_cache_key": 7}),
        ("chat_completions", {"prompt_cache_key": ""}),
        ("chat_completions", {"prompt_cache_key": None}),
        ("chat_completions", {"user": "ann", "safety_identifier": "ann"}),
        ("responses", {"previous_response_id": "resp_1"}),
        ("responses", {"conversation": None, "prompt_cache_key": {}}),
        ("messages", {"metadata": {}}),
        ("messages", {"metadata": None}),
        ("messages", {"metadata": "K"}),
        ("messages", {"metadata": {"user_id": 7}}),
        ("generate_content", {"cachedContent": ["x"]}),
    ],
)
def test_what_is_no_name_of_it_is_passed_over(family, given):
    assert of_turns(family, ("user", FIRST), **given) == of_turns(family, ("user", FIRST))


def test_what_cannot_be_read_makes_no_fault():
    turns = json.dumps(body_of("messages", [("user", FIRST)]))[1:-1]
    odd = b'{"metadata":{"user_id":"K","n":1e999},%b}' % turns.encode()
    assert name_of("messages", odd) == of_turns("messages", ("user", FIRST))
    deep = b'{"messages":[{"role":"user","content":%b%b}]}' % (b"[" * 900, b"]" * 900)
    assert name_of("messages", deep) == name_of("messages", deep)


@pytest.mark.parametrize("turns", [[], [7, "x"], ["x"], "x", None, {}, [{"role": "user"}]])
def test_odd_turns(turns):
    for family in FAMILIES:
        body = {"model": "m", LISTS.get(family, "messages"): turns}
        assert isinstance(name_of(family, body), bytes)
    assert name_of("responses", {"model": "m"}) == b""


def test_many_turns_before_the_users_first_one():
    turns = [("system", f"Rule {number}") for number in range(MAX_TURNS + 5)]
    once = of_turns("chat_completions", *turns, ("user", FIRST))
    assert once == of_turns("chat_completions", *turns, ("user", "another"), *MORE)


def test_a_turn_that_begins_in_the_first_window_and_ends_behind_it():
    for size in (WINDOWS_BYTES[0] - 100, WINDOWS_BYTES[0], WINDOWS_BYTES[1] - 100):
        names = {
            name_of("chat_completions", body_of("chat_completions", turns), ensure_ascii=False)
            for turns in (
                [("user", "é" * (size // 2) + end), *more] for end in "ab" for more in ((), MORE)
            )
        }
        assert len(names) == 2


def test_one_text_in_place_of_a_list():
    def of_text(text, **more):
        return name_of("responses", {"model": "m", "input": text, **more})

    texts = ("a", "b", LONG, "x" + LONG)
    assert len({of_text(text) for text in texts}) == len(texts)
    assert of_text("a", instructions="i") != of_text("a")
    assert len(of_text(LONG)) < 4 * ENDS_CHARS

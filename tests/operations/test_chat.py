"""Conversations as each family's clients send them, and the text of their answers."""

import ast
import json
import shutil
import subprocess

import pytest

from adapters.family.traits import Traits
from adapters.registry import FAMILY_NAMES
from operations.chat import AnswerReader, Chat, ChatTurn, encode_chat
from operations.chat_code import CURL, JAVASCRIPT, LANGUAGES, PYTHON, SDKS, code_of, literal

TRAITS = Traits(openai_extras=True, search=True)
TURNS = [ChatTurn("user", "hi"), ChatTurn("assistant", "yo"), ChatTurn("user", 'it\'s "q"\n@base')]
WANTED = {
    "chat_completions": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "yo"},
            {"role": "user", "content": TURNS[2].text},
        ],
        "max_completion_tokens": 99,
        "reasoning_effort": "low",
        "web_search_options": {},
    },
    "responses": {
        "instructions": "Be brief.",
        "max_output_tokens": 99,
        "reasoning": {"effort": "low"},
        "tools": [{"type": "web_search"}],
    },
    "messages": {"system": "Be brief.", "max_tokens": 99, "output_config": {"effort": "low"}},
    "generate_content": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"googleSearch": {}}],
    },
}


def request(family, **fields):
    settings = {"system": "Be brief.", "max_tokens": 99, "effort": "low", "search": True}
    settings |= {"further": {"x_own": {"a": [True, None]}}} | fields
    return encode_chat(family, Chat("org/m", TURNS, **settings), TRAITS)


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_settings_stand_where_the_family_has_them(family):
    sent = request(family)
    wanted = {**WANTED[family], "x_own": {"a": [True, None]}}
    assert {name: sent.body.get(name) for name in wanted} == wanted
    assert "org%2Fm:stream" in sent.path or sent.body["stream"] is True
    plain = encode_chat(family, Chat("m", TURNS[:1], stream=False), TRAITS)
    assert "stream" not in plain.path and not plain.body.get("stream")
    assert not {"temperature", "top_p", "tools", "reasoning", "include"} & plain.body.keys()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_code_is_whole_and_says_what_is_sent(family, stream):
    sent = request(family, stream=stream)
    samples = code_of(family, "https://gate.example.com", "org/m", sent)
    assert [sample.language for sample in samples] == list(LANGUAGES)
    texts = {sample.language: sample.text for sample in samples}
    calls = [node for node in ast.walk(ast.parse(texts[PYTHON])) if isinstance(node, ast.Call)]
    names = {word.arg for node in calls for word in node.keywords}
    assert {"model", "api_key" if family != "messages" else "auth_token"} <= names
    for text in texts.values():
        assert "https://gate.example.com" in text and "SLUICE_API_KEY" in text
        assert "org/m" in text or "org%2Fm" in text
        assert "@base" in text and "x_own" in text  # from the prompt
    script = f'curl() {{ for last; do :; done; printf %s "$last"; }}; {texts[CURL]}'
    lines = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True, text=True)
    assert json.loads(lines.stdout) == sent.body
    if node := shutil.which("node"):
        check = [node, "--input-type=module", "--check"]
        subprocess.run(check, input=texts[JAVASCRIPT], check=True, text=True)


def test_every_family_has_both_sdks():
    assert SDKS.keys() == {(family, one) for family in FAMILY_NAMES for one in LANGUAGES[1:]}


def test_literals_of_both_languages():
    value = {"a b": [True, None, 1.5], "c": "é\n"}
    assert ast.literal_eval(literal(value, PYTHON)) == value
    assert literal(value, JAVASCRIPT) == '{ "a b": [true, null, 1.5], c: "é\\n" }'
    assert literal({}, JAVASCRIPT) == "{}"
    long = {"x": "y" * 70, "z": [1]}
    assert ast.literal_eval(literal(long, PYTHON)) == long


WHOLE = {
    "chat_completions": {"choices": [{"index": 0, "message": {"content": "Hello."}}]},
    "responses": {
        "status": "completed",
        "output": [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
            }
        ],
    },
    "messages": {"content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn"},
    "generate_content": {"candidates": [{"content": {"parts": [{"text": "Hello."}]}}]},
}


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_the_text_of_a_whole_answer(family):
    reader = AnswerReader(family)
    assert reader.whole(json.dumps(WHOLE[family]).encode()) == "Hello."
    for broken in (b"", b"[]", b"<html>"):
        assert reader.whole(broken) == ""


def test_a_stream_in_any_cut():
    events = [
        {"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("Hel", "lo", " 你")
    ]
    lines = [f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events]
    stream = "".join([": heartbeat\n\n", *lines, "data: {\n\n", "data: [DONE]\n\n"]).encode()
    for size in (1, 7, len(stream)):
        reader = AnswerReader("chat_completions")
        pieces = [reader.feed(stream[at : at + size]) for at in range(0, len(stream), size)]
        assert "".join(pieces) == "Hello 你"

"""Requests of chat completions: reading, editing, headers."""

import json

import pytest

from adapters.chat_completions import FAMILY
from adapters.family import Vendor
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from adapters.registry import VENDORS

CREATE = FAMILY.client.operations["generate"]


def body_of(**fields) -> bytes:
    return json.dumps({"model": "m", "messages": [], **fields}).encode()


def peek(**fields):
    return FAMILY.client.peek(top_level(body_of(**fields)), CREATE, None)


def edit(body: bytes, upstream_model: str = "m", vendor: Vendor = VENDORS["openai"]) -> bytes:
    spans = top_level(body)
    return FAMILY.upstream.edit_request(
        spans, FAMILY.client.peek(spans, CREATE, None), CREATE, upstream_model, vendor
    )


def test_defaults():
    read = peek()
    assert (read.model, read.stream, read.max_output_tokens) == ("m", False, None)
    assert (read.choices, read.include_usage) == (1, False)


def test_what_is_read():
    assert peek(max_tokens=5, max_completion_tokens=9).max_output_tokens == 9
    assert peek(max_tokens=9, max_completion_tokens=None).max_output_tokens == 9
    for no_bound in ({"max_completion_tokens": 0}, {"max_tokens": 0, "max_completion_tokens": 9}):
        assert peek(**no_bound).max_output_tokens is None
    assert peek(n=4).choices == 4 and peek(n=None).choices == 1 and peek(n=0).choices == 1
    assert peek(stream=True).stream
    assert peek(stream_options={"include_usage": True}).include_usage
    assert not peek(stream_options={"include_usage": None}).include_usage


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 7}, "model"),
        ({"messages": {}}, "messages"),
        ({"messages": None}, "messages"),
        ({"stream": "yes"}, "stream"),
        ({"n": "2"}, "n"),
        ({"n": True}, "n"),
        ({"n": -1}, "n"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 2**31 + 1}, "max_tokens"),
        ({"max_completion_tokens": []}, "max_completion_tokens"),
        ({"stream_options": True}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ],
)
def test_wrong_types(fields, param):
    with pytest.raises(Fault) as caught:
        peek(**fields)
    assert caught.value.condition is Condition.INVALID_FIELD
    assert caught.value.param == param and f"'{param}'" in caught.value.message


def test_the_model_is_looked_at_first():
    with pytest.raises(Fault) as caught:
        FAMILY.client.peek(top_level(b'{"messages":7,"n":"x"}'), CREATE, None)
    assert caught.value.condition is Condition.MODEL_MISSING
    with pytest.raises(Fault) as caught:
        FAMILY.client.peek(top_level(b'{"model":"m"}'), CREATE, None)
    assert caught.value.condition is Condition.FIELD_MISSING
    assert caught.value.param == "messages"


def test_plain_requests_pass_untouched():
    body = body_of(model="m", unknown={"model": "x"})
    assert edit(body) is body
    assert edit(body, "up") == body.replace(b'"model": "m"', b'"model": "up"')
    asked = body_of(stream=True, stream_options={"include_usage": True})
    assert edit(asked) is asked


def test_usage_is_asked_for_behind_the_brace():
    body = b' \n{ "stream":true,"model":"m","messages":[]}'
    assert edit(body, "a/\u00e9") == (
        b' \n{"stream_options":{"include_usage":true}, "stream":true,"model":"a/\\u00e9",'
        b'"messages":[]}'
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"null", {"include_usage": True}),
        (b"{}", {"include_usage": True}),
        (b'{ "include_usage" : false }', {"include_usage": True}),
        (
            b'{"include_obfuscation":false,"include_usage":null}',
            {"include_obfuscation": False, "include_usage": True},
        ),
    ],
)
def test_stream_options_keep_their_other_members(before, after):
    head, tail = b'{"model":"m","stream_options": ', b' ,"messages":[],"stream":true}'
    edited = edit(head + before + tail)
    assert edited.startswith(head) and edited.endswith(tail)
    assert json.loads(edited[len(head) : -len(tail)]) == after


def test_a_vendor_that_refuses_stream_options_is_not_asked():
    body = body_of(stream=True)
    vendor = Vendor("odd", frozenset({"chat_completions"}), "bearer", stream_options=False)
    assert edit(body, vendor=vendor) is body
    assert b"include_usage" in edit(body, vendor=VENDORS["openai-compatible"])


def test_first_party_headers_go_to_the_first_party_only():
    client = {"openai-organization": "org-1", "openai-beta": "x=1", "user-agent": "me"}
    lines = FAMILY.upstream.request_headers(client, VENDORS["openai"], "k")
    assert lines[3:] == ["openai-organization: org-1", "openai-beta: x=1"]
    assert len(FAMILY.upstream.request_headers(client, VENDORS["openai-compatible"], "k")) == 3

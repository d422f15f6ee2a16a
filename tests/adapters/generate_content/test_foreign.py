"""Bodies of generate-content clients for upstreams of their own family."""

import base64
import json

import pytest

from adapters.family.opaque import PREFIX, Origin, wrap
from adapters.faults import Fault
from adapters.generate_content import CODECS
from adapters.generate_content.parts import BYPASS
from adapters.json.jsonio import top_level

WRAPPED = wrap("value", Origin("messages", "mark", b"secret", "user"))
OURS = base64.b64encode(WRAPPED.encode()).decode()
NATIVE = base64.b64encode(b"a vendor's own").decode()
CALL = {"functionCall": {"name": "f", "args": {"x": 1.0}}}


def cleaned(body, model="gemini-3-pro"):
    return CODECS.client.without_foreign(top_level(body), model)


def cleaned_parts(*parts, model="gemini-3-pro"):
    body = json.dumps({"contents": [{"role": "model", "parts": list(parts)}]}).encode()
    return json.loads(cleaned(body, model))["contents"][0]["parts"]


def test_the_mark_is_how_wrapped_state_begins():
    assert OURS.encode().startswith(CODECS.client.foreign_mark)
    for rest in ("a", "z", "_"):
        begun = base64.b64encode((PREFIX + rest).encode())
        assert begun.startswith(CODECS.client.foreign_mark)


def test_contents_without_any_stay_byte_for_byte():
    head = b'{ "x" :1, "contents": [ {"parts":[{"text":"\\u00e9 \xc3\xa9"}] } ,\n'
    ours = b'{"parts":[{"text":"a","thoughtSignature":"%b"}]}' % OURS.encode()
    tail = b' , {"parts":[{"thoughtSignature": "%b","text":"b"}]}], "y":1e2}' % NATIVE.encode()
    assert cleaned(head + ours + tail) == head + b'{"parts":[{"text":"a"}]}' + tail


def test_a_body_without_any_is_the_same():
    body = b'{"contents":[{"parts":[{"text":"Z3cxL"}]}]}'
    assert json.loads(cleaned(body)) == json.loads(body)
    body = b'{"contents":[]}'
    assert cleaned(body) is body


@pytest.mark.parametrize("name", ["thoughtSignature", "thought_signature"])
def test_a_call_gets_the_documented_value_where_the_model_wants_one(name):
    part = {**CALL, name: OURS.replace("+", "-").replace("/", "_").rstrip("=")}
    assert cleaned_parts(part) == [{**CALL, "thoughtSignature": BYPASS}]
    assert cleaned_parts(part, model="models/gemini-2.5-flash") == [CALL]


def test_empty_texts_that_had_state_alone_go():
    empty = {"text": "", "thoughtSignature": OURS}
    assert cleaned_parts({"text": "a"}, empty) == [{"text": "a"}]
    assert cleaned_parts(empty) == cleaned_parts(empty, empty) == [{"text": ""}]


def test_the_vendors_own_signatures_stay():
    part = {**CALL, "thoughtSignature": NATIVE}
    assert cleaned_parts(part, {"text": "a", "thoughtSignature": OURS}) == [part, {"text": "a"}]


def test_without_any_reasoning_the_vendors_own_go_too():
    body = json.dumps({"contents": [{"parts": [{**CALL, "thoughtSignature": NATIVE}]}, {}]})
    spans = top_level(body.encode())
    found = json.loads(CODECS.client.without_reasoning(spans, "gemini-3-pro"))
    assert found["contents"] == [{"parts": [{**CALL, "thoughtSignature": BYPASS}]}, {}]
    found = json.loads(CODECS.client.without_reasoning(spans, "gemini-2.5-pro"))
    assert found["contents"] == [{"parts": [CALL]}, {}]


def test_a_request_that_is_to_be_counted():
    inner = {"contents": [{"parts": [{"text": "é", "thoughtSignature": OURS}, {"text": "b"}]}]}
    for name in ("generateContentRequest", "generate_content_request"):
        body = json.dumps({"a": 1, name: inner}, ensure_ascii=False).encode()
        found = json.loads(cleaned(body))
        assert found == {"a": 1, name: {"contents": [{"parts": [{"text": "é"}, {"text": "b"}]}]}}


def test_odd_contents_stay():
    for body in (
        b'{"contents":7}',
        b'{"contents":["Z3cxL"]}',
        b'{"contents":[{"parts":"Z3cxL"}]}',
        b'{"contents":[{"parts":[{"thoughtSignature":"Z3cxL"},{"thoughtSignature":1}]}]}',
    ):
        assert json.loads(cleaned(body)) == json.loads(body)


def test_a_number_out_of_range_is_refused():
    body = b'{"contents":[{"parts":[{"text":"Z3cxL","x":1e999}]}]}'
    with pytest.raises(Fault):
        cleaned(body)

"""Strict reading, spans, lenient reading, writing."""

import json
import time
import tracemalloc

import pytest

from adapters.faults import Condition, Fault
from adapters.json import jsonio
from adapters.json.structure import at_once

DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

BAD = {
    "NaN": (b'{"a":NaN}', "line 1, column 6"),
    "Infinity": (b'{"a":\n -Infinity}', "line 2, column 3"),
    "control": (b'{"a":"\x01"}', "line 1, column 7"),
    "newline": (b'{"a":"x\ny"}', "line 1, column 8"),
    "high surrogate": (b'{"a":"\\ud83d x"}', "line 1"),
    "low surrogate": (b'{"a":"\\ude00 x"}', "line 1"),
    "surrogate in key": (b'{"\\ud83d x":1}', "line 1"),
    "leading zero": (b'{"a":01}', "line 1, column 7"),
    "no fraction": (b'{"a":1.}', "line 1, column 8"),
    "bad UTF-8": (b'{"a":"\xff"}', "UTF-8 (byte 7)"),
    "surrogate in UTF-8": (b'{"a":"\xed\xa0\x80"}', "UTF-8"),
    "BOM": (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), "UTF-16"),
    "UTF-16 without BOM": ('{"a":1}'.encode("utf-16-le"), "UTF-16"),
    "UTF-32": ('{"a":1}'.encode("utf-32-be"), "UTF-32"),
    "deep": (DEEP, "nested too deeply"),
    "cut": (b'{"a":', "line 1, column 6"),
    "empty": (b"", "line 1, column 1"),
    "comma": (b'{"a":1,}', "line 1, column 8"),
    "two documents": (b'{"a":1}{}', "line 1"),
    "comment": (b'{"a":1/**/}', "line 1, column 7"),
    "single quotes": (b"{'a':1}", "line 1, column 2"),
}


@pytest.mark.parametrize(("body", "words"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("read", [jsonio.loads, jsonio.top_level])
def test_strictness(read, body, words):
    with pytest.raises(Fault) as caught:
        read(body)
    assert caught.value.condition is Condition.INVALID_JSON
    assert words in caught.value.message


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"null", b"true"])
def test_only_objects_have_fields(body):
    jsonio.loads(body)
    with pytest.raises(Fault) as caught:
        jsonio.top_level(body)
    assert caught.value.condition is Condition.INVALID_JSON
    assert "object" in caught.value.message


def test_column_counts_characters():
    with pytest.raises(Fault, match="line 2, column 6"):
        jsonio.loads('{"é":"ü",\n"日本":x}'.encode())


def test_spans_show_where_values_stand():
    body = b' {"model" : "m", "n":-1.5e3,\n\t"k\\u00e9\\"y":{"model":"deep"} ,"l":[ ]}\r\n'
    spans = jsonio.top_level(body)
    assert list(spans.places) == ["model", "n", 'ké"y', "l"]
    assert spans.raw("model") == b'"m"' and spans.value("model") == "m"
    assert spans.value("n") == -1500.0
    assert spans.value('ké"y') == {"model": "deep"}
    assert spans.raw("l") == b"[ ]"
    assert "n" in spans and "absent" not in spans
    assert spans.get("absent") is None and spans.raw("absent") is None
    assert spans.value("absent") is None
    assert body[spans.opening - 1] == ord("{") and spans.opening == 2
    assert jsonio.top_level(b"{}").places == {}


def test_every_span_is_the_value_as_it_was_sent():
    body = '{"a":"ключ","b":"\\ud83d\\ude00","c":[1,{"a":2}],"d":1e999,"e":"\\\\","f":""}'.encode()
    spans = jsonio.top_level(body)
    joined = b",".join(
        jsonio.dumps(name) + b":" + body[span.start : span.end]
        for name, span in spans.places.items()
    )
    assert b"{" + joined + b"}" == body


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"a","model":"b"}',
        b'{"model":"a","x":1,"model":"a"}',
        b'{"mod\\u0065l":"a","model":"a"}',
        b'{"model":"a","\\u006dodel":"a","z":0}',
        b'{"model":1,"model":12}',
        b'{"model":12,"model":1}',
    ],
)
def test_a_doubled_key_is_named(body):
    with pytest.raises(Fault) as caught:
        jsonio.top_level(body)
    assert caught.value.condition is Condition.INVALID_FIELD
    assert caught.value.param == "model"
    assert caught.value.message == "The field 'model' comes twice."


def test_doubled_keys_deeper_inside_are_not_ours_to_judge():
    assert jsonio.top_level(b'{"a":{"b":1,"b":2}}').value("a") == {"b": 2}


def test_numbers_out_of_range_matter_only_where_they_are_read():
    spans = jsonio.top_level(b'{"a":1e999,"b":{"c":-1e999},"d":123456789012345678901234567890}')
    assert spans.value("d") == 123456789012345678901234567890
    for name in ("a", "b"):
        with pytest.raises(Fault) as caught:
            spans.value(name)
        assert caught.value.condition is Condition.INVALID_FIELD
        assert caught.value.param == name
    with pytest.raises(Fault) as caught:
        jsonio.loads(b'{"a":1e999}')
    assert caught.value.condition is Condition.INVALID_FIELD


def test_millions_of_small_objects_cost_little():
    body = b'{"model":"m","messages":[' + b"{}," * 2_300_000 + b"{}]}"
    tracemalloc.start()
    began = time.perf_counter()
    spans = jsonio.top_level(body)
    took = time.perf_counter() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert spans.value("model") == "m"
    assert peak < len(body) // 2 and took < 2


def test_too_many_fields_end_the_reading_early():
    body = b"{" + b",".join(b'"a%d":0' % i for i in range(300_000)) + b"}"
    tracemalloc.start()
    with pytest.raises(Fault, match="more than 1000 fields"):
        jsonio.top_level(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < len(body) // 2
    fields = b",".join(b'"a%d":0' % i for i in range(jsonio.MAX_TOP_LEVEL_FIELDS))
    assert len(jsonio.top_level(b"{" + fields + b"}").places) == jsonio.MAX_TOP_LEVEL_FIELDS


def test_utf8_is_checked_across_the_pieces():
    for shift in range(4):
        text = ("x" * shift + "漢" * 60_000).encode()
        assert jsonio.loads(b'"' + text + b'"')
        with pytest.raises(Fault, match="UTF-8"):
            jsonio.loads(b'"' + text[:-1] + b'"')


def test_loose_reading_takes_what_clients_take():
    odd = b'{"a":"\\ud83d","b":NaN,"c":"\x01","d":1e999}'
    assert jsonio.loads_loose(odd)["a"] == "\ud83d"
    for bad in (b"", b"<html>", b"\xff", b"{", DEEP):
        with pytest.raises(ValueError):
            jsonio.loads_loose(bad)


def test_writing():
    assert jsonio.dumps({"a": "/é\ud800<", "b": None, "n": 10**30}) == (
        b'{"a":"/\\u00e9\\ud800<","b":null,"n":1000000000000000000000000000000}'
    )
    assert jsonio.compact({"a": "/é<\n", "b": [1, None]}) == '{"a":"/é<\\n","b":[1,null]}'
    for write in (jsonio.dumps, jsonio.compact):
        with pytest.raises(OverflowError):
            write(float("nan"))


def test_the_walk_refuses_what_it_does_not_find():
    for body, value in ((b'{"a":1}', b"2"), (b'{"a" 1}', b"1"), (b'{"a":1}', b"11")):
        with pytest.raises(Fault) as caught:
            jsonio._walk(body, {jsonio._Key("a"): jsonio.Raw(value)})
        assert caught.value.condition is Condition.INVALID_JSON


def test_locate_walks_and_never_searches():
    data = b'{"x":{"model":"no"},"t":"\\"model\\":\\"no\\"","message":{"a":[],"model":"yes"}}'
    span = jsonio.locate(data, "message", "model")
    assert span is not None and data[span.start : span.end] == b'"yes"'
    assert jsonio.locate(data, "model") is None
    assert jsonio.locate(data, "t", "model") is None
    assert jsonio.locate(b"[]", "model") is None


def test_locate_in_text_that_the_strict_reader_refuses():
    data = b'{"c":"\\ud83d\x01","model":"m","l":"\\\\ud83d"}'
    span = jsonio.locate(data, "model")
    assert span is not None and data[span.start : span.end] == b'"m"'
    for bad in (b'{"model":1,"model":2}', b'{"a":NaN,"model":"m"}', b'{"a"'):
        with pytest.raises(Fault) as caught:
            jsonio.locate(bad, "model")
        assert caught.value.condition is Condition.UPSTREAM_INVALID


def test_replace_takes_places_in_any_order():
    edits = {jsonio.Span(4, 5): b"DDD", jsonio.Span(1, 1): b"+", jsonio.Span(2, 3): b""}
    assert jsonio.replace(b"01234567", edits) == b"0+13DDD567"


def test_a_value_that_is_too_long_is_not_decoded():
    spans = jsonio.top_level(b'{"a":"%b"}' % (b"x" * jsonio.MAX_VALUE_BYTES))
    with pytest.raises(Fault) as caught:
        spans.value("a")
    assert caught.value.condition is Condition.INVALID_FIELD and caught.value.param == "a"


def test_the_top_level_in_steps():
    body = b'{"a":[1,2],"b":"x"}'
    assert at_once(jsonio.top_level_steps(body)) == jsonio.top_level(body)
    with pytest.raises(Fault) as caught:
        at_once(jsonio.top_level_steps(b'{"a":[%b0]}' % (b"0," * jsonio.MAX_VALUES)))
    assert caught.value.condition is Condition.INVALID_FIELD


def test_the_elements_of_an_array_are_found_undecoded():
    found = jsonio.elements(b' [ {"a": [1, "]"]} ,"\xc3\xa9", 7 ] ')
    assert found is not None
    assert list(map(bytes, found)) == [b'{"a": [1, "]"]}', b'"\xc3\xa9"', b"7"]
    assert jsonio.elements(b"[]") == []


@pytest.mark.parametrize("text", [b'{"a": 1}', b'"[1]"', b"null", b"7"])
def test_what_is_no_array_has_no_elements(text):
    assert jsonio.elements(text) is None


@pytest.mark.parametrize(
    "text", ["", "tea", 'a "b" \\ /', "\n\t\x00", "\x7f", "é\u2028", "😀", "\ud800"]
)
def test_a_string_is_written_in_ascii_and_read_as_it_was(text):
    written = jsonio.dumps_text(text)
    assert written.isascii() and b"\n" not in written
    assert json.loads(written) == text

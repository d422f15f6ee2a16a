"""Answers of upstreams: usage, errors, odd bodies, counts, stored objects, samples."""

import json
import pathlib

import pytest

from adapters.bridge import NativeBridge
from adapters.faults import Condition, Fault
from adapters.responses import FAMILY
from adapters.responses.upstream import read_failure, read_usage
from store.values.usage import Usage


def read(body: bytes, public: str = "m", operation: str = "generate"):
    return FAMILY.upstream.read_answer(body, public, "m", FAMILY.client.operations[operation])


def condition_of(body: bytes, operation: str = "generate") -> str:
    with pytest.raises(Fault) as caught:
        read(body, operation=operation)
    return caught.value.condition.value


def details(**fields):
    return {"input_tokens_details": fields}


def split(half_hour, twelve_hours):
    counts = {"ttl_30m_tokens": half_hour, "ttl_12h_tokens": twelve_hours}
    return {"cache_write_tokens_details": counts}


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, Usage(10, 5)),
        ({"input_tokens": 0, "output_tokens": 0}, Usage()),
        (details(cached_tokens=7), Usage(3, 5, 7)),
        (details(cached_tokens=7, cache_write_tokens=2), Usage(1, 5, 7, 2)),
        (details(cached_tokens=70, cache_write_tokens=2), Usage(0, 5, 10)),
        (details(cached_tokens=7, cache_write_tokens=20), Usage(0, 5, 7, 3)),
        (details(cache_write_tokens=6, **split(2, 4)), Usage(4, 5, 0, 2, 4)),
        # The total counts if the split does not add up.
        (details(cache_write_tokens=6, **split(2, 9)), Usage(4, 5, 0, 0, 6)),
        (details(**split(2, 4)), Usage(4, 5, 0, 2, 4)),
        (details(cached_tokens=9, **split(2, 4)), Usage(0, 5, 9, 0, 1)),
        (details(cache_write_tokens_details=7), Usage(10, 5)),
        (details(cached_tokens=True, cache_write_tokens=-1), Usage(10, 5)),
        ({"input_tokens_details": [], "output_tokens_details": None}, Usage(10, 5)),
        ({"output_tokens_details": {"reasoning_tokens": 4}}, Usage(10, 1, reasoning_tokens=4)),
        ({"output_tokens_details": {"reasoning_tokens": 9}}, Usage(10, 0, reasoning_tokens=5)),
        ({"output_tokens_details": {"reasoning_tokens": "4"}}, Usage(10, 5)),
        ({"total_tokens": None, "tool_usage": {}}, Usage(10, 5)),
    ],
)
def test_disjoint_counts(fields, counts):
    assert read_usage({"input_tokens": 10, "output_tokens": 5, **fields}) == counts


@pytest.mark.parametrize(
    ("item", "units"),
    [
        ({"type": "message", "content": [{"type": "refusal", "refusal": "x" * 16}]}, 4),
        ({"type": "message", "content": [{"text": "x" * 8}, {"text": "x" * 8}, 7, {}]}, 4),
        ({"type": "reasoning", "summary": [{"text": "x" * 16}], "encrypted_content": "y"}, 4),
        ({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "x" * 16}]}, 4),
        ({"type": "function_call", "name": "f", "arguments": "x" * 16}, 4),
        ({"type": "custom_tool_call", "name": "f", "input": "x" * 16}, 4),
        ({"type": "code_interpreter_call", "code": "x" * 16, "outputs": []}, 4),
        ({"type": "function_call", "arguments": {"a": 1}, "content": "x", "summary": None}, 0),
        (7, 0),
        (None, 0),
    ],
)
def test_output_is_counted_when_no_usage_is_reported(item, units):
    assert read(json.dumps({"output": [item]}).encode()).output_units == units
    assert read(json.dumps({"output": [item], "x": "\ud800"}).encode()).output_units == units


@pytest.mark.parametrize("status", ["completed", "incomplete", "in_progress", "queued", None])
def test_answers_pass_as_they_are(status):
    output = [{"type": "web_search_call", "status": status}]
    answer = {"id": "resp_1", "model": "m", "status": status, "error": None, "output": output}
    for body in (json.dumps(answer).encode(), json.dumps({**answer, "x": "\ud800"}).encode()):
        found = read(body)
        assert found.body is body and found.upstream_id == "resp_1" and found.output_units == 0
        assert read(body, "pub").body == body.replace(b'"m"', b'"pub"')


def test_only_a_top_level_string_is_renamed():
    for body in (b'{"output":[{}],"model":7}', b'{"output":[{"model":"m"}],"x":{"model":"m"}}'):
        assert read(body, "pub").body == body
    with pytest.raises(Fault) as caught:
        read(b'{"output":[{}],"model":"m","model":"m"}', "pub")
    assert caught.value.condition is Condition.UPSTREAM_INVALID


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        (b"", "E30"),
        (b"<html><body>busy</body></html>", "E30"),
        (b"{}", "E30"),
        (b"[]", "E30"),
        (b'{"status":"completed"}', "E30"),
        (b'{"output":null,"status":"completed"}', "E30"),
        (b'{"output":{},"status":"completed"}', "E30"),
        (b'{"output":[],"x":"\xff"}', "E30"),
        (b'{"choices":[{"message":{}}]}', "E30"),
        (b'{"error":{"message":"m","type":"server_error"}}', "E26"),
        (b'{"error":{"message":"m","code":401}}', "E24"),
        (b'{"error":{"message":"m","code":"rate_limit_exceeded"},"output":[]}', "E25"),
        (b'{"output":[],"status":"failed","error":null}', "E30"),
        (b'{"output":[],"status":"failed","error":{"code":"server_error"},"usage":{}}', "E26"),
        (
            b'{"output":[],"x":"\\ud800","status":"failed","error":{"code":"insufficient_quota"}}',
            "E24",
        ),
    ],
)
@pytest.mark.parametrize("operation", ["generate", "compact"])
def test_what_is_no_answer(body, condition, operation):
    assert condition_of(body, operation) == condition


@pytest.mark.parametrize(
    ("code", "condition"),
    [
        ("server_error", "E26"),
        ("server_is_overloaded", "E27"),
        ("rate_limit_exceeded", "E25"),
        ("context_length_exceeded", "E21"),
        ("insufficient_quota", "E24"),
        ("invalid_prompt", "E22"),
        ("data_residency_mismatch", "E22"),
        ("image_too_large", "E22"),
        ("failed_to_download_image", "E22"),
        ("bio_policy", "E23"),
        ("misalignment_policy_violation", "E23"),
        ("image_content_policy_violation", "E23"),
        ("vector_store_timeout", "E28"),
        ("never_heard_of", "E30"),
        (None, "E30"),
        (["server_error"], "E30"),
    ],
)
def test_the_codes_of_a_failed_response(code, condition):
    error = {"code": code, "message": "The words."}
    forms = [
        {"type": "response.failed", "response": {"status": "failed", "error": error}},
        {"status": "failed", "error": error},
        {"type": "error", "sequence_number": 3, "param": None, **error},
        {"type": "error", **error, "error": {"type": "x", **error}},
    ]
    assert [read_failure(form).condition.value for form in forms] == [condition] * 4


def test_words_of_the_vendor_are_cleaned():
    error = {"code": "invalid_prompt", "message": "Bad for sk-abcdefghijklmnop1234567890."}
    message = read_failure({"error": error}).message
    assert message.startswith("The upstream refused the request: Bad for ")
    assert "abcdefghij" not in message
    for nothing in (None, [], 7, "x", {"response": 7}, {"error": 7}, {"response": {"error": []}}):
        assert read_failure(nothing).condition is Condition.UPSTREAM_INVALID


def test_a_compaction_is_billed():
    usage = {"input_tokens": 100, "output_tokens": 9, "total_tokens": 109}
    output = [{"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}]
    answer = {"id": "resp_1", "object": "response.compaction", "output": output, "usage": usage}
    body = json.dumps(answer).encode()
    found = read(body, "pub", "compact")
    assert found.body is body and found.usage == Usage(100, 9) and found.upstream_id == "resp_1"
    assert found.reported == usage


@pytest.mark.parametrize("operation", ["stored", "cancel", "list_input"])
def test_stored_things_pass_as_they_are(operation):
    for body in (
        b'{"id":"resp_1", "object":"response.deleted","deleted":true}',
        b'{"status":"failed","error":{"code":"server_error"},"model":"m","output":[],"usage":{}}',
        b'{"object":"list","data":[],"has_more":false}',
    ):
        found = read(body, "pub", operation)
        assert found.body is body and found.usage is None and found.output_units == 0
    for bad in (b"", b"[]", b"<html>", b"null"):
        assert condition_of(bad, operation) == "E30"


# ---- samples -------------------------------------------------------------------------------------

WIRE = pathlib.Path(__file__).parents[2] / "wire" / "responses"
FAILED = (WIRE / "midstream_error.sse").read_bytes()


def run(data):
    """Return what is sent for a stream, and its bridge."""
    create = FAMILY.client.operations["generate"]
    bridge = NativeBridge(FAMILY.upstream.stream_tap("m", "m", True, create), 65536)
    return bridge.feed(data) + bridge.close(), bridge


@pytest.mark.parametrize("condition", list(Condition))
def test_the_last_event_alone_of_a_failed_stream_is_read_back_as_an_error(condition):
    first = FAILED.split(b"\n\n")[0] + b"\n\n"
    end = run(first)[1].encode_fault(Fault(condition, model="m", param="p"), "req_1")
    sent, stream = run(first + end[end.index(b"event: response.failed") :])
    assert sent == first and stream.fault is not None


def test_a_marker_behind_the_last_event_is_not_passed():
    data = (WIRE / "text.sse").read_bytes()
    sent, stream = run(data + b"data: [DONE]\n\n")
    assert sent == data and stream.whole

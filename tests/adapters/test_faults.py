"""Reading upstream errors: status and body to condition, advice and cleaned message."""

import json

import pytest

from adapters.faults import Condition, Fault, read_embedded_error, read_upstream_error


def chat(message="m", kind="invalid_request_error", code=None):
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def messages(message="m", kind="invalid_request_error"):
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}})


def google(code, status, message="m", details=()):
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return json.dumps({"error": error})


# status, body, condition, fail over, key set aside
READINGS = [
    (400, chat("Unknown field 'x'"), "E22", False, False),
    (413, chat("too big"), "E22", False, False),
    (422, '{"detail":[{"loc":["body"],"msg":"x"}]}', "E22", False, False),
    (415, "", "E22", False, False),
    (400, chat("x", code="context_length_exceeded"), "E21", False, False),
    (400, chat("This model's maximum context length is 8192 tokens"), "E21", False, False),
    (400, messages("prompt is too long: 210000 tokens > 200000 maximum"), "E21", False, False),
    (
        400,
        google(400, "INVALID_ARGUMENT", "The input exceeds the maximum number of tokens"),
        "E21",
        False,
        False,
    ),
    (400, chat("x", code="content_policy_violation"), "E23", False, False),
    (400, chat("The response was filtered", code="content_filter"), "E23", False, False),
    (400, messages("Output blocked by content filtering policy"), "E23", False, False),
    (400, messages("Your credit balance is too low to access the API"), "E24", True, True),
    (400, chat("Insufficient Balance"), "E24", True, True),
    (400, chat("x", code="insufficient_quota"), "E24", True, True),
    (
        400,
        google(
            400,
            "INVALID_ARGUMENT",
            "API key not valid.",
            [{"reason": "API_KEY_INVALID"}],
        ),
        "E24",
        True,
        True,
    ),
    (401, chat("Incorrect API key provided", code="invalid_api_key"), "E24", True, True),
    (402, messages("x", "billing_error"), "E24", True, True),
    (403, "<html>forbidden</html>", "E24", True, True),
    (404, chat("The model `x` does not exist", code="model_not_found"), "E24", True, False),
    (404, messages("model: demo", "not_found_error"), "E24", True, False),
    (404, '{"detail":"Not Found"}', "E24", True, False),
    (404, "", "E24", True, False),
    (404, "<html>404</html>", "E24", True, False),
    (404, chat("No such File object: file-abc123"), "E35", False, False),
    (404, messages("File not found: file_011CNha8", "not_found_error"), "E35", False, False),
    (404, chat("Previous response with id 'resp_1' not found."), "E35", False, False),
    (405, "", "E24", True, False),
    (407, "", "E24", True, False),
    (410, "", "E24", True, False),
    (408, "", "E26", True, False),
    (409, messages("x", "conflict_error"), "E26", True, False),
    (425, "", "E26", True, False),
    (500, messages("x", "api_error"), "E26", True, False),
    (502, "<html>Bad Gateway</html>", "E26", True, False),
    (501, "", "E26", True, False),
    (520, "", "E26", True, False),
    (526, "", "E26", True, False),
    (429, chat("x", "insufficient_quota", "insufficient_quota"), "E24", True, True),
    (429, chat("You exceeded your current quota, check your billing"), "E24", True, True),
    (
        429,
        chat("Rate limit reached for requests", "requests", "rate_limit_exceeded"),
        "E25",
        True,
        False,
    ),
    (429, messages("x", "rate_limit_error"), "E25", True, False),
    (429, "slow down", "E25", True, False),
    (
        429,
        google(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, check billing"),
        "E25",
        True,
        False,
    ),
    (503, google(503, "UNAVAILABLE"), "E27", True, False),
    (529, messages("Overloaded", "overloaded_error"), "E27", True, False),
    (500, messages("Overloaded", "overloaded_error"), "E27", True, False),
    (504, "", "E28", False, False),
    (500, google(500, "DEADLINE_EXCEEDED"), "E28", False, False),
    (302, "", "E30", True, False),
    (200, "", "E30", True, False),
]


@pytest.mark.parametrize(("status", "body", "condition", "fail_over", "aside"), READINGS)
def test_status_and_body(status, body, condition, fail_over, aside):
    read = read_upstream_error(status, {}, body.encode())
    assert read.fault.condition == condition
    assert (read.fail_over, read.set_key_aside) == (fail_over, aside)


@pytest.mark.parametrize(
    "body",
    [
        '{"error":{"message":"the words"}}',
        '[{"error":{"message":"the words"}}]',
        '{"detail":"the words"}',
        '{"message":"the words"}',
        '{"msg":"the words","code":1}',
        '{"error":"the words"}',
        '{"error":null,"message":"the words"}',
        '{"error":{"message":5,"detail":"the words"}}',
        '{"response":{"error":{"message":"the words"}},"type":"response.failed"}',
        '"the words"',
        "the words",
        '\n data: {"error":{"message":"the words"}}\n\n',
        'event: error\ndata: {"error":{"message":"the words"}}\n\n',
    ],
)
def test_the_message_is_found_in_every_shape(body):
    read = read_upstream_error(400, {}, body.encode())
    assert read.fault.message == "The upstream refused the request: the words"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html>the words</html>",
        "[]",
        "{}",
        "7",
        "data: nonsense",
        '{"error":{}}',
        '{"detail":[]}',
    ],
)
def test_no_message(body):
    read = read_upstream_error(400, {}, body.encode())
    assert read.fault.message == "The upstream refused the request."


def test_pages_too_large_are_not_read():
    body = b'{"error":{"message":"' + b"x " * 50_000 + b'"}}'
    assert read_upstream_error(400, {}, body).fault.message.endswith("the request.")


def test_messages_of_the_conditions():
    def message(status, body):
        return read_upstream_error(status, {}, body.encode()).fault.message

    assert message(500, chat("secret words")) == "The upstream failed with status 500."
    assert message(401, chat("secret words")) == (
        "The channel for this model is not usable; the operator has been told."
    )
    assert message(404, chat("No such file file_1")) == (
        "The upstream does not know an id of the request: No such file file_1"
    )
    fault = read_upstream_error(400, {}, messages("prompt is too long: 9 > 8").encode()).fault
    assert fault.detail == "prompt is too long: 9 > 8" and fault.param == "messages"
    fault = read_upstream_error(400, {}, chat("", code="context_length_exceeded").encode()).fault
    assert fault.detail is None


def test_secrets_never_come_through():
    body = chat("Refused for key upstream-k3y at box-7 of org-AbC123 (https://v.example/x)")
    read = read_upstream_error(400, {}, body.encode(), secrets=["upstream-k3y", "box-7"])
    assert (
        read.fault.message
        == "The upstream refused the request: Refused for key *** at *** of *** (***)"
    )


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0"}, 1),
        ({"retry-after": "1.2"}, 2),
        ({"retry-after": "3600"}, 60),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Fri, 20 Nov 2026 10:00:00 GMT"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 2),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9),
    ],
)
def test_retry_after(headers, seconds):
    assert read_upstream_error(429, headers, b"").fault.retry_after_s == seconds


@pytest.mark.parametrize(
    ("status", "message", "without"),
    [
        (400, "messages.1.content.0: Invalid `signature` in `thinking` block", "reasoning"),
        (400, "The encrypted content could not be verified.", "reasoning"),
        (400, "Unexpected value(s) `x-2025` for the `anthropic-beta` header.", "beta"),
        (400, "Unrecognized request argument supplied: stream_options", "stream_options"),
        (422, "include_usage is unknown", "stream_options"),
        (400, "Unknown field", None),
        (500, "signature", None),
    ],
)
def test_what_to_retry_without(status, message, without):
    assert read_upstream_error(status, {}, chat(message).encode()).retry_without == without


# embedded error, condition, key set aside
EMBEDDED = [
    ({"error": {"type": "server_error", "message": "boom"}}, "E26", False),
    ({"error": {"type": "upstream_error"}}, "E26", False),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "boom"}}, "E27", False),
    ({"type": "error", "error": {"type": "api_error", "message": "boom"}}, "E26", False),
    ({"error": {"type": "rate_limit_error", "message": "boom"}}, "E25", False),
    ({"error": {"code": 429, "message": "boom"}}, "E25", False),
    ({"error": {"code": "429", "message": "boom"}}, "E25", False),
    ({"error": {"code": 502, "message": "boom"}}, "E26", False),
    ({"error": {"code": 401, "message": "boom"}}, "E24", True),
    ({"error": {"code": 404, "message": "no such model"}}, "E24", False),
    ({"error": {"code": 504, "message": "boom"}}, "E28", False),
    ({"error": {"code": True, "message": "boom"}}, "E30", False),
    ({"error": {"code": 200, "message": "boom"}}, "E30", False),
    ({"error": {"code": 503, "status": "UNAVAILABLE", "message": "boom"}}, "E27", False),
    ({"error": {"type": "authentication_error", "message": "x"}}, "E24", True),
    ({"error": {"type": "invalid_request_error", "code": "model_not_found"}}, "E24", False),
    ({"error": {"type": "invalid_request_error", "message": "bad"}}, "E22", False),
    ({"error": {"type": "invalid_request_error", "message": "prompt is too long"}}, "E21", False),
    ({"error": {"type": "invalid_request_error", "message": "content policy"}}, "E23", False),
    ({"error": {"code": "content_filter"}}, "E23", False),
    ({"error": {"message": "Your credit balance is too low"}}, "E24", True),
    ({"error": {"type": "timeout_error"}}, "E28", False),
    (
        {"error": {"code": "subscription", "details": {"error_code": "insufficient_quota"}}},
        "E24",
        True,
    ),
    ({"error": "boom"}, "E30", False),
    ({"detail": "boom"}, "E30", False),
    ({"error": {"message": "boom"}}, "E30", False),
    ([{"error": {"code": 503, "status": "UNAVAILABLE"}}], "E27", False),
    (None, "E30", False),
    (7, "E30", False),
]


@pytest.mark.parametrize(("error", "condition", "aside"), EMBEDDED)
def test_errors_inside_an_answer(error, condition, aside):
    read = read_embedded_error(error)
    assert read.fault.condition == condition
    assert read.fail_over and read.set_key_aside == aside


def test_words_inside_an_answer():
    error = {"error": {"type": "overloaded_error", "message": "Busy at org-AbC123"}}
    assert read_embedded_error(error).fault.message == "Busy at ***"
    error = {"error": {"type": "overloaded_error"}}
    assert read_embedded_error(error).fault.message == "The upstream is overloaded."
    error = {"error": {"message": "Your credit balance is too low"}}
    assert "credit" not in read_embedded_error(error).fault.message
    assert isinstance(read_embedded_error(error, ["x"]).fault, Fault)
    assert read_embedded_error("words").fault.condition is Condition.UPSTREAM_INVALID

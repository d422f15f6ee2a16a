"""Reading upstream errors: status and body to condition, advice and cleaned message."""

import json

import pytest

from adapters.faults import Condition, Fault
from adapters.upstream_errors.read import read_embedded_error, read_upstream_error


def chat(message="m", kind="invalid_request_error", code=None):
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def messages(message="m", kind="invalid_request_error"):
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}})


def responses(message="m", code=None, param=None):
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return json.dumps({"error": error})


def info(kind, **fields):
    return {"@type": f"type.googleapis.com/google.rpc.{kind}", **fields}


def google(code, status, message="m", details=()):
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return json.dumps({"error": error})


def invalid(*args):
    return google(400, "INVALID_ARGUMENT", *args)


UNSEEN_CACHE = "CachedContent not found (or permission denied)"
UNSEEN_FILE = "You do not have permission to access the File abc-1 or it may not exist."

FREE_TIER = "Rate limit reached. Limit: 3 / min. Add a payment method at your account/billing."
SPENT = "insufficient_quota"
LIMITED = "rate_limit_exceeded"
NOT_THERE = responses("x", "previous_response_not_found", "previous_response_id")
EXPIRED = info("ErrorInfo", reason="API_KEY_INVALID", domain="googleapis.com")
KEY = "E24 of the key"
# condition -> status and body
READINGS = {
    "E22": [
        (400, chat("Unknown field 'x'")),
        (413, chat("too big")),
        (422, '{"detail":[{"loc":["body"],"msg":"x"}]}'),
        (415, ""),
        (400, google(400, "FAILED_PRECONDITION", "x")),
        (400, chat("Invalid value: 'insufficient credit'.")),
        (400, chat("Unknown name \"it's an invalid api key\" 'x'")),
        (400, responses("No: invalid api key", param="input[0].role")),
    ],
    "E21": [
        (400, chat("x", code="context_length_exceeded")),
        (400, chat("This model's maximum context length is 8192 tokens")),
        (400, messages("prompt is too long: 210000 tokens > 200000 maximum")),
        (400, invalid("The input exceeds the maximum number of tokens")),
        (
            400,
            invalid(
                "The input token count (1200000) exceeds the maximum number of tokens allowed."
            ),
        ),
        (400, responses("x", "context_length_exceeded", "input")),
    ],
    "E23": [
        (400, chat("x", code="content_policy_violation")),
        (400, chat("The response was filtered", code="content_filter")),
        (400, messages("Output blocked by content filtering policy")),
        (400, responses("Invalid prompt: usage policy", "invalid_prompt")),
    ],
    KEY: [
        (400, messages("Your credit balance is too low to access the API")),
        (400, chat("Insufficient Balance")),
        (400, chat("x", code=SPENT)),
        (400, invalid("API key not valid.", [{"reason": "API_KEY_INVALID"}])),
        (400, invalid("API key expired. Please renew the API key.", [EXPIRED])),
        (401, google(401, "UNAUTHENTICATED", "x")),
        (403, google(403, "PERMISSION_DENIED", "Consumer is suspended")),
        (403, google(403, "PERMISSION_DENIED", "Cached content is switched off")),
        (403, google(403, "PERMISSION_DENIED", "The caller has no permission")),
        (401, chat("Incorrect API key provided", code="invalid_api_key")),
        (402, messages("x", "billing_error")),
        (403, "<html>forbidden</html>"),
        (429, chat("x", SPENT, SPENT)),
        (429, chat("You exceeded your current quota, check your billing")),
        (429, chat(FREE_TIER, "tokens", SPENT)),
        (429, chat(FREE_TIER, "x")),
        (400, chat("It's over: your credit balance is too low. Pay in `Billing`")),
    ],
    "E24": [
        (404, google(404, "NOT_FOUND", "models/x is not found for API version")),
        (404, chat("The model `x` does not exist", code="model_not_found")),
        (404, messages("model: demo", "not_found_error")),
        (404, '{"detail":"Not Found"}'),
        (404, ""),
        (404, "<html>404</html>"),
        *((status, "") for status in (405, 407, 410)),
    ],
    "E35": [
        (403, google(403, "PERMISSION_DENIED", UNSEEN_CACHE)),
        (404, google(404, "NOT_FOUND", UNSEEN_CACHE)),
        (403, google(403, "PERMISSION_DENIED", UNSEEN_FILE)),
        (400, NOT_THERE),
        (404, NOT_THERE),
        (404, responses("Response with id 'resp_1' not found.")),
        (404, responses("Item with id 'rs_12345' not found.")),
        (404, chat("No such File object: file-abc123")),
        (404, messages("File not found: file_011CNha8", "not_found_error")),
        (404, chat("Previous response with id 'resp_1' not found.")),
    ],
    "E26": [
        (500, google(500, "INTERNAL", "x")),
        (409, messages("x", "conflict_error")),
        (500, messages("x", "api_error")),
        (502, "<html>Bad Gateway</html>"),
        *((status, "") for status in (408, 425, 501, 520, 526)),
    ],
    "E27": [
        (500, google(500, "UNAVAILABLE", "x")),
        (503, f"[{google(503, 'UNAVAILABLE', 'x')}]"),
        (503, google(503, "UNAVAILABLE")),
        (529, messages("Overloaded", "overloaded_error")),
        (500, messages("Overloaded", "overloaded_error")),
    ],
    "E28": [(504, ""), *((status, google(status, "DEADLINE_EXCEEDED")) for status in (500, 504))],
    "E25": [
        (429, f"[{google(429, 'RESOURCE_EXHAUSTED', 'x')}]"),
        (429, chat("Rate limit reached for requests", "requests", LIMITED)),
        (429, messages("x", "rate_limit_error")),
        (429, chat(FREE_TIER, "requests", LIMITED)),
        (429, "slow down"),
        (429, google(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, check billing")),
    ],
    "E30": [(302, ""), (200, "")],
}
FAIL_OVER = {KEY, "E24", "E25", "E26", "E27", "E30"}


@pytest.mark.parametrize(
    ("outcome", "status", "body"),
    [(outcome, *row) for outcome, rows in READINGS.items() for row in rows],
)
def test_status_and_body(outcome, status, body):
    read = read_upstream_error(status, {}, body.encode())
    assert read.fault.condition == outcome[:3]
    assert (read.fail_over, read.fault.key_refused) == (outcome in FAIL_OVER, outcome == KEY)


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
        chat("the words"),
        responses("the words", param="input"),
        messages("the words"),
        invalid("the words"),
        f"[{invalid('the words')}]",
    ],
)
def test_the_message_is_found_in_every_shape(body):
    fault = read_upstream_error(400, {}, body.encode()).fault
    assert fault.message == "The upstream refused the request: the words"
    # The vendor's path may not be one of the request as the client sent it.
    assert fault.param is None


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
        "\ufeff<!DOCTYPE html><title>the words</title>",
        "the words: <html><body>the words</body></html>",
        '{"error":{"message":"the words <HTML lang=en><head>"}}',
        '{"detail":"<!doctype html><p>the words"}',
        '<?xml version="1.0"?><Error><Message>the words</Message></Error>',
    ],
)
def test_no_message(body):
    read = read_upstream_error(400, {}, body.encode())
    assert read.fault.message == "The upstream refused the request."


@pytest.mark.parametrize("status", [400, 404])
def test_an_id_that_the_upstream_does_not_know(status):
    words = "Previous response with id 'resp_abc' not found."
    body = responses(words, "previous_response_not_found", "previous_response_id").encode()
    fault = read_upstream_error(status, {}, body).fault
    assert (fault.condition, fault.param) == ("E35", "previous_response_id")
    assert fault.message == f"The upstream does not know an id of the request: {words}"
    embedded = read_embedded_error(json.loads(body)).fault
    assert (embedded.condition, embedded.param) == ("E35", "previous_response_id")


@pytest.mark.parametrize(
    "param", [None, 5, "", "a b", "input[0]<b>", "x" * 101, "é", "https://v.example", "api.v.com"]
)
def test_a_param_that_is_no_path_of_names_is_not_told(param):
    body = responses("No such file: file-abc123", param=param).encode()
    fault = read_upstream_error(404, {}, body).fault
    assert (fault.condition, fault.param) == ("E35", None)


def test_words_that_only_speak_of_tags_come_through():
    body = chat("Unexpected '<div>' in messages[0].content").encode()
    assert "'<div>'" in read_upstream_error(400, {}, body).fault.message


def test_pages_too_large_are_not_read():
    body = b'{"error":{"message":"' + b"x " * 50_000 + b'"}}'
    assert read_upstream_error(400, {}, body).fault.message.endswith("the request.")


UNUSABLE = "The channel for this model is not usable; tell the operator."
UNKNOWN = "The upstream does not know an id of the request: No such file file_1"
OWN_WORDS = {
    "context_length_exceeded": "The prompt is longer than the model's context window.",
    "content_policy_violation": "The upstream refused the request for its content.",
}


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, chat("secret words"), "The upstream failed with status 500."),
        (401, chat("secret words"), UNUSABLE),
        (404, chat("No such file file_1"), UNKNOWN),
        (400, chat("Blocked by our content policy"), "Blocked by our content policy"),
        (400, messages("prompt is too long: 9 > 8"), "prompt is too long: 9 > 8"),
        *((400, chat("", code=code), words) for code, words in OWN_WORDS.items()),
        *((400, chat(f"<html>{c}</html>", code=c), words) for c, words in OWN_WORDS.items()),
    ],
)
def test_messages_of_the_conditions(status, body, message):
    fault = read_upstream_error(status, {}, body.encode()).fault
    assert fault.message == message
    assert fault.param == ("messages" if fault.condition == "E21" else None)


def test_secrets_never_come_through():
    body = chat("Refused for key upstream-k3y at box-7 of org-AbC123 (https://v.example/x)")
    read = read_upstream_error(400, {}, body.encode(), secrets=["upstream-k3y", "box-7"])
    assert (
        read.fault.message
        == "The upstream refused the request: Refused for key *** at *** of *** (***)"
    )


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429, 500, 502, 503, 504, 529])
def test_only_what_is_about_the_request_is_told_in_the_upstreams_words(status):
    fault = read_upstream_error(status, {}, chat("our account is over").encode()).fault
    assert "our account" not in fault.message and fault.detail is None


def test_a_message_is_cut_to_one_line_of_500_characters():
    said = read_upstream_error(400, {}, chat("a b\n" * 1000).encode()).fault.message
    words = said.removeprefix("The upstream refused the request: ")
    assert len(words) == 500 and "\n" not in words


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
    ("delay", "seconds"),
    [("7s", 7), ("34.074824224s", 35), ("0s", 1), ("0.2s", 1), ("86400s", 60), ("9" * 9 + "s", 60),
     ("9" * 400 + "s", None), ("-3s", None), ("1e3s", None), ("soon", None), ("7", None),
     ("", None),
     (7, None), (None, None), ({"seconds": 7}, None), ("٣s", None)],
)  # fmt: skip
def test_the_wait_of_googles_details(delay, seconds):
    details = [7, info("Help", retryDelay="1s"), info("RetryInfo", retryDelay=delay)]
    body = google(429, "RESOURCE_EXHAUSTED", details=details)
    for text in (body, f"[{body}]"):
        assert read_upstream_error(429, {}, text.encode()).fault.retry_after_s == seconds
    assert read_embedded_error(json.loads(body)).fault.retry_after_s == seconds


def test_a_header_says_the_wait_before_the_body():
    body = google(429, "RESOURCE_EXHAUSTED", details=[info("RetryInfo", retryDelay="40s")]).encode()
    assert read_upstream_error(429, {"retry-after": "9"}, body).fault.wait_s == 9
    assert read_upstream_error(429, {"retry-after": "soon"}, body).fault.wait_s == 40
    body = google(429, "x", details={"reason": "x"}).encode()
    assert read_upstream_error(429, {}, body).fault.wait_s == 5


@pytest.mark.parametrize(
    ("status", "message", "without"),
    [
        (400, "messages.1.content.0: Invalid `signature` in `thinking` block", "reasoning"),
        (400, "The encrypted content could not be verified.", "reasoning"),
        (400, "Unexpected value(s) `x-2025` for the `anthropic-beta` header.", "beta"),
        (400, "Unrecognized request argument supplied: stream_options", "stream_options"),
        (422, "include_usage is unknown", "stream_options"),
        (400, "reasoning_content is missing in assistant tool call message 1", "bare_turns"),
        (400, "The `content[].thinking` must be passed back to the API.", "bare_turns"),
        (400, "Missing `reasoning_content` field in the assistant message", "bare_turns"),
        (400, "reasoning_content must be removed", None),
        (400, "Unknown field", None),
        (500, "signature", None),
    ],
)
def test_what_to_retry_without(status, message, without):
    assert read_upstream_error(status, {}, chat(message).encode()).retry_without == without


# embedded error, condition, whether the key is suspended
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
    ({"error": {"code": "invalid_api_key", "type": "invalid_request_error"}}, "E24", True),
    ({"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "x"}}, "E24", True),
    ({"error": {"code": 405, "message": "x"}}, "E24", False),
    ({"error": {"status": "NOT_FOUND", "message": "models/x is not found"}}, "E24", False),
    ({"error": {"code": 403, "status": "PERMISSION_DENIED", "message": UNSEEN_FILE}}, "E35", False),
    ({"error": {"type": "not_found_error", "message": "No file: file_011CNha8"}}, "E35", False),
    ({"error": {"type": "invalid_request_error", "code": "model_not_found"}}, "E24", False),
    ({"error": {"type": "invalid_request_error", "message": "bad"}}, "E22", False),
    ({"error": {"type": "invalid_request_error", "message": "prompt is too long"}}, "E21", False),
    ({"error": {"type": "invalid_request_error", "message": "content policy"}}, "E23", False),
    ({"error": {"code": "content_filter"}}, "E23", False),
    ({"error": {"message": "Your credit balance is too low"}}, "E24", True),
    ({"error": {"type": "timeout_error"}}, "E28", False),
    ({"error": {"code": "subscription", "details": {"error_code": SPENT}}}, "E24", True),
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
    assert read.fail_over and read.fault.key_refused == aside


def test_words_inside_an_answer():
    for code in OWN_WORDS:
        error = json.loads(chat("At https://v.example: no", code=code))
        assert read_embedded_error(error).fault.message == "At *** no"
    error = {"error": {"type": "overloaded_error", "message": "Busy at org-AbC123"}}
    assert read_embedded_error(error).fault.message == "Busy at ***"
    error = {"error": {"type": "overloaded_error"}}
    assert read_embedded_error(error).fault.message == "The upstream is overloaded."
    error = {"error": {"message": "Your credit balance is too low"}}
    assert "credit" not in read_embedded_error(error).fault.message
    assert isinstance(read_embedded_error(error, ["x"]).fault, Fault)
    assert read_embedded_error("words").fault.condition is Condition.UPSTREAM_INVALID


OVER = "You exceeded your current quota, please check your plan and billing details."
USED = "the vendor's quota is used up"


@pytest.mark.parametrize(
    ("status", "body", "told", "quota_used"),
    [
        (429, chat(OVER, "insufficient_quota", "insufficient_quota"),
         f"{USED}: {OVER} (insufficient_quota)", True),
        (400, messages("Your credit balance is too low"),
         f"{USED}: Your credit balance is too low (invalid_request_error)", True),
        (402, "", USED, True),
        (403, google(403, "PERMISSION_DENIED", "Billing is not enabled"),
         f"{USED}: Billing is not enabled (PERMISSION_DENIED)", True),
        (401, chat("Incorrect API key provided: sk-12345678.", code="invalid_api_key"),
         "Incorrect API key provided: *** (invalid_api_key)", False),
        (400, google(400, "INVALID_ARGUMENT", "API key not valid.",
                     [info("ErrorInfo", reason="API_KEY_INVALID")]),
         "API key not valid. (API_KEY_INVALID)", False),
        (429, chat("Rate limit reached", "requests", "rate_limit_exceeded"),
         "Rate limit reached (rate_limit_exceeded)", False),
        (429, chat(FREE_TIER, "requests", "rate_limit_exceeded"),
         f"{FREE_TIER} (rate_limit_exceeded)", False),
        (500, "no JSON at https://internal.example/x", "no JSON at ***", False),
        (500, "<html>Oops</html>", "the answer is a page for people (HTML)", False),
        (302, "<html>Moved</html>", "the answer is a redirect, which is never followed", False),
        (503, "", None, False),
        (500, chat("x" * 900), ("x" * 500), False),
    ],
)  # fmt: skip
def test_operators_are_told_the_vendors_words(status, body, told, quota_used):
    fault = read_upstream_error(status, {}, body.encode()).fault
    assert (fault.operator_message, fault.quota_used) == (told, quota_used)
    assert told is None or fault.operator_message not in Fault(fault.condition).message


def test_operators_are_told_the_words_of_an_error_inside_an_answer_too():
    fault = read_embedded_error(json.loads(chat(OVER, code="insufficient_quota"))).fault
    assert fault.operator_message == f"{USED}: {OVER} (insufficient_quota)" and fault.quota_used
    fault.operator_message = "with key-of-ours inside"
    fault.mask(["key-of-ours"])
    assert fault.operator_message == "with *** inside"


NOT_FOUND, IN_FLIGHT, UNSUPPORTED = (
    {"error_code": f"thread_{why}"}
    for why in ("not_found", "continue_in_flight", "unsupported_request")
)


@pytest.mark.parametrize(
    ("status", "details", "condition", "told"),
    [
        (404, NOT_FOUND, "E35", NOT_FOUND),
        (
            400,
            {**UNSUPPORTED, "unsupported": ["thinking", "sk-key 1", 7]},
            "E22",
            {**UNSUPPORTED, "unsupported": ["thinking"]},
        ),
        (409, {**IN_FLIGHT, "secret": "x"}, "E22", IN_FLIGHT),
        (404, {"error_code": "model_gone"}, "E24", None),
        (500, NOT_FOUND, "E26", NOT_FOUND),
    ],
)
def test_why_a_thread_cannot_go_on_gets_through(status, details, condition, told):
    error = {"type": "invalid_request_error", "message": "m", "details": details}
    body = json.dumps({"type": "error", "error": error}).encode()
    read = read_upstream_error(status, {}, body)
    assert (read.fault.condition.value, read.fault.details) == (condition, told)
    assert read.fail_over == (condition in ("E24", "E26"))

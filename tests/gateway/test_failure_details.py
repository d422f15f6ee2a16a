"""Reasons why an attempt failed: its record has the vendor's message or the connection's error,
cleaned, and the log has it for the first failure of a channel."""

import contextlib
import datetime
import json

import pytest

from tests.support.certificates import Authority
from tests.support.client import exchange
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import UPSTREAM_KEY, channel, document
from tests.support.echo import ANSWER, CHUNK, GOOD, Echo, answer_of, events_of

HOUR = datetime.timedelta(hours=1)
PROMPT = "Please sing of seventeen zebras in Zanzibar, password hunter2017."


def openai(status, message, code, kind="invalid_request_error", **headers):
    error = {"message": message, "type": kind, "param": None, "code": code}
    return answer_of(status, {"error": error}, **headers)


# What the vendor answers -> status, error and detail of the attempt. All other answers:
# tests/adapters/upstream_errors/test_read.py
SAID = {
    "wrong-key": (
        openai(401, f"Incorrect API key provided: {UPSTREAM_KEY}.", "invalid_api_key"),
        (401, "channel_misconfigured", "Incorrect API key provided: ***. (invalid_api_key)"),
    ),
    "payment": (
        answer_of(402, b""),
        (402, "channel_misconfigured", "the vendor's quota is used up"),
    ),
    "broken": (
        openai(500, "The server had an error while processing.", "internal", "server_error"),
        (500, "upstream_error", "The server had an error while processing. (internal)"),
    ),
    "moved": (
        answer_of(301, b"", location="https://elsewhere.example/v1"),
        (301, "upstream_invalid_response", "the answer is a redirect, which is never followed"),
    ),
    "no-json": (
        answer_of(200, b"<html>Welcome</html>", "text/html"),
        (200, "upstream_invalid_response", "text/html, 20 bytes"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def expired(tmp_path_factory):
    """Yield (port, ca_file) of an upstream whose certificate has expired."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with contextlib.closing(Echo(authority.server_context(ends_in=-HOUR))) as upstream:
        yield upstream.port, str(authority.ca_file)


@pytest.fixture(scope="module")
def changing():
    """Yield an upstream whose answer a test sets."""
    with contextlib.closing(Echo()) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(launch, expired, changing, dead_port):
    with contextlib.ExitStack() as stack:
        channels = [
            channel("nowhere", CHAT, "http://no-such.internal.invalid", {"nowhere": "up"}),
            channel("closed", CHAT, f"http://127.0.0.1:{dead_port}", {"closed": "up"}),
            channel("expired", CHAT, f"https://localhost:{expired[0]}", {"expired": "up"},
                    ca_file=expired[1]),
        ]  # fmt: skip
        for name, (answer, _) in SAID.items():
            upstream = stack.enter_context(contextlib.closing(Echo()))
            upstream.answer = answer
            channels.append(channel(name, CHAT, upstream.url, {name: "up"}))
        incomplete = [f"incomplete-{number}" for number in ("201-0", "201-8", "202-2", "204-0")]
        for name in ("changing", "echoing", "breaking", "busy", *incomplete):
            channels.append(channel(name, CHAT, changing.url, {name: "up"}))
        models = [one["name"] for one in channels]
        yield launch(document(models, channels))


def call(gateway, model, prompt="Say something.", **more):
    body = ask(CHAT, model, prompt, **more)
    answer = exchange(gateway.port, "POST", PATHS[CHAT], credentials(CHAT), body)
    return answer, gateway.record(answer.call_id)


def lines_about(gateway, name):
    """Return the log's lines that say that a channel fails."""
    return [
        line["message"]
        for line in map(json.loads, gateway.log().splitlines())
        if line.get("message", "").startswith(f"channel fails: channel={name} ")
    ]


@pytest.mark.parametrize("name", SAID)
def test_an_attempt_has_the_vendors_words(gateway, name):
    status, error, detail = SAID[name][1]
    answer, record = call(gateway, name)
    [attempt] = record["attempts"]
    assert attempt.pop("ms") >= 0
    assert attempt == {"channel": name, "status": status, "error": error, "detail": detail}
    [line] = lines_about(gateway, name)
    quoted = json.dumps(detail)
    assert line == (
        f"channel fails: channel={name} model={name} upstream_model=up upstream_status={status}"
        f" error={error} request_id={answer.call_id} detail={quoted}"
    )


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("nowhere", "connect", "Could not resolve host: ***"),
        ("closed", "connect", "Connection refused: Failed to connect to ***"),
        ("expired", "tls", "certificate has expired"),
    ],
)
def test_an_attempt_says_how_the_vendor_could_not_be_reached(gateway, name, error, words):
    _, record = call(gateway, name)
    [attempt] = record["attempts"]
    assert (attempt["status"], attempt["error"]) == (None, error)
    assert words in attempt["detail"]
    [line] = lines_about(gateway, name)
    assert words in line


@pytest.mark.parametrize("status", [200, 201])
def test_a_complete_answer_is_an_answer_without_a_detail(gateway, changing, status):
    changing.answer = answer_of(status, ANSWER)
    answer, record = call(gateway, "changing")
    assert answer.status == record["status"] == 200
    assert answer.json == ANSWER | {"model": "changing"}
    assert (record["outcome"], record["usage_source"]) == ("ok", "reported")
    [attempt] = record["attempts"]
    assert (attempt["status"], attempt["error"], attempt["detail"]) == (status, None, None)


@pytest.mark.parametrize(
    ("status", "body"), [(201, b""), (201, b'{"id":1}'), (202, b"{}"), (204, b"")]
)
def test_what_is_no_complete_answer_is_none(gateway, changing, status, body):
    changing.answer = answer_of(status, body)
    answer, record = call(gateway, f"incomplete-{status}-{len(body)}")
    assert answer.status == 502 and record["outcome"] == "upstream_error"
    assert record["attempts"][0]["status"] == status


def test_a_stream_that_breaks_says_how(gateway, changing):
    error = {"error": {"message": f"overloaded at {UPSTREAM_KEY}", "code": "overloaded_error"}}
    changing.answer = events_of(CHUNK | {"choices": [{"index": 0, "delta": {"content": "a"}}]},
                                error)  # fmt: skip
    answer, record = call(gateway, "breaking", stream=True)
    [attempt] = record["attempts"]
    assert (record["outcome"], attempt["status"], attempt["error"]) == ("upstream_error", 200, None)
    assert attempt["detail"] == "overloaded at *** (overloaded_error)"
    assert UPSTREAM_KEY.encode() not in answer.body
    [line] = lines_about(gateway, "breaking")  # no text: the request is no longer in memory
    assert line.endswith(f"error=upstream_overloaded request_id={answer.call_id}")


@pytest.mark.parametrize("stream", [False, True])
def test_a_wait_in_the_head_of_an_answer_with_an_error_inside_is_passed_on(
    gateway, changing, stream
):
    body = json.dumps({"error": {"message": "busy", "type": "overloaded_error"}}).encode()
    kind = "text/event-stream" if stream else "application/json"
    data = b"data: %b\n\n" % body if stream else body
    changing.answer = answer_of(200, data, kind, retry_after=9)
    answer, _ = call(gateway, "busy", stream=stream)
    assert (answer.status, answer.headers["retry-after"]) == (503, "9")


def test_the_first_failure_after_a_success_is_logged_and_no_other(gateway, changing):
    changing.answer = GOOD
    call(gateway, "changing")
    before = len(lines_about(gateway, "changing"))
    changing.answer = SAID["broken"][0]
    for _ in range(3):
        call(gateway, "changing")
    assert len(lines_about(gateway, "changing")) == before + 1


def test_the_log_does_not_repeat_what_a_vendor_repeats_of_a_prompt(gateway, changing):
    words = f"Cannot answer 'seventeen zebras in zanzibar' with hunter2017 and {UPSTREAM_KEY}"
    changing.answer = openai(500, words, "internal", "server_error")
    _, record = call(gateway, "echoing", PROMPT)
    assert "zebras" in record["attempts"][0]["detail"]  # operators may see it in the record
    [line] = lines_about(gateway, "echoing")
    assert "detail=\"Cannot answer '***' with *** and *** (internal)\"" in line
    for secret in ("zebras", "hunter2017", UPSTREAM_KEY):
        assert secret not in gateway.log()

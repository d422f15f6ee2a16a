"""An upstream key that is refused inside an answer with status 200 is put aside as by a 401.

In four families, plain and streamed: the next calls do not meet that channel any more.
"""

import contextlib
import json

import pytest

from adapters.faults import CODES, Condition
from tests.support.client import exchange, wait_until
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MESSAGES,
    RESPONSES,
    ask,
    credentials,
    path_of,
)
from tests.support.documents import channel, document
from tests.support.upstream import RawUpstream

CODE = CODES[Condition.CHANNEL_MISCONFIGURED]
HOW = ("plain", "streamed")
OPENAI = {"error": {"message": "no", "type": "invalid_request_error", "code": "invalid_api_key"}}
ERRORS = {
    CHAT: OPENAI,
    RESPONSES: {
        "type": "response.failed",
        "response": {"id": "resp_1", "status": "failed", "output": [], **OPENAI},
    },
    MESSAGES: {"type": "error", "error": {"type": "authentication_error", "message": "no"}},
    GENERATE: {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "no"}},
}
# Before an answer is accepted it may say itself how long it is not to be asked.
BUSY = {"error": {"type": "overloaded_error", "message": "busy"}}


def answer_of(error, streamed, *headers):
    body = json.dumps(error).encode()
    if streamed:
        body = b"data: %b\n\n" % body
    kind = "text/event-stream" if streamed else "application/json"
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


def answering(data, is_good):
    """What an upstream says to a call; its list of models is open to a good key alone."""

    def answer(request):
        if not request.startswith(b"GET "):
            return data
        body = b"{}"
        status = b"200 OK" if is_good else b"401 No"
        return b"HTTP/1.1 %b\r\nContent-Length: 2\r\nConnection: close\r\n\r\n%b" % (status, body)

    return answer


def model_of(family, how, what="refused"):
    return f"{family}-{how}-{what}"


@pytest.fixture(scope="module")
def refusing():
    """(family, how) -> an upstream whose every answer has an error in it."""
    with contextlib.ExitStack() as stack:
        made = {}
        for how in HOW:
            answers = {family: answer_of(ERRORS[family], how == "streamed") for family in ALL}
            answers["busy"] = answer_of(BUSY, how == "streamed", "Retry-After: 30")
            for what, data in answers.items():
                refusing = answering(data, is_good=what == "busy")
                made[what, how] = stack.enter_context(RawUpstream(refusing))
        yield made


@pytest.fixture(scope="module")
def gateway(launch, vendor, refusing):
    models, channels = [], []

    def serve(model, family, url):
        models.append(model)
        more = {"priority": 9, "keys": ["sk-bad"]}
        channels.append(channel(f"bad-{model}", family, url, {model: "demo-small"}, **more))
        channels.append(channel(f"good-{model}", family, vendor.url, {model: "demo-small"}))

    for how in HOW:
        for family in ALL:
            serve(model_of(family, how), family, refusing[family, how].url)
        serve(model_of(CHAT, how, "busy"), CHAT, refusing["busy", how].url)
    return launch(document(models, channels))


def call(gateway, family, model, how):
    stream = how == "streamed"
    body, path = ask(family, model, stream=stream), path_of(family, model, stream)
    answer = exchange(gateway.port, "POST", path, credentials(family), body)
    assert answer.status == 200 and answer.whole, answer.body
    return gateway.record(answer.call_id)["attempts"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("family", ALL)
def test_a_key_refused_inside_an_answer_is_put_aside_when_the_list_refuses_it_too(
    gateway, family, how
):
    model = model_of(family, how)
    first = call(gateway, family, model, how)
    told = f"channel=bad-{model} upstream_key=1/1"
    assert wait_until(lambda: told in gateway.log())
    others = [call(gateway, family, model, how) for _ in range(3)]
    tried = [(one["channel"], one["status"], one["error"]) for one in first]
    assert tried == [(f"bad-{model}", 200, CODE), (f"good-{model}", 200, None)]
    assert [[one["channel"] for one in attempts] for attempts in others] == [[f"good-{model}"]] * 3
    assert gateway.log().count(told) == 1
    assert "sk-bad" not in gateway.log()


@pytest.mark.parametrize("how", HOW)
def test_a_wait_that_is_told_with_an_error_inside_is_obeyed(gateway, how):
    model = model_of(CHAT, how, "busy")
    counts = [len(call(gateway, CHAT, model, how)) for _ in range(4)]
    assert counts == [2, 1, 1, 1]

"""Objects that a vendor keeps belong to the user who made them, whatever their kind; others can be
named only if a channel lists them.

Two users share one upstream key, in four families. For stored responses see
tests/gateway/test_stored_owners.py.
"""

import contextlib
import json
import threading

import pytest

from tests.support import dialects
from tests.support.client import Connection, exchange, wait_until
from tests.support.documents import channel
from tests.support.echo import answer_of
from tests.support.two_users import MODEL, SECRETS, content
from tests.support.upstream import STREAM_HEAD, RawUpstream

FILE = {"type": "document", "source": {"type": "file", "file_id": "x_1"}}
# Objects not made through the gateway: fields of a request and their path in errors. The adapters
# know all of these.
GIVEN = {
    dialects.RESPONSES: ({"prompt": {"id": "x_1"}}, "prompt.id"),
    dialects.MESSAGES: (
        {"messages": [{"role": "user", "content": [FILE]}]},
        "messages.0.content.0.source.file_id",
    ),
    dialects.CHAT: (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x_1"}}]}]},
        "messages[0].content[0].file.file_id",
    ),
    dialects.GENERATE: ({"cachedContent": "x_1"}, "cachedContent"),
}
TEXT = {"type": "output_text", "text": "Yes.", "annotations": []}
ITEM = {"type": "message", "id": "msg_{n}", "role": "assistant", "content": [TEXT]}
ANSWERS = {
    dialects.CHAT: {"id": "c", "choices": [{"index": 0, "message": {"content": "Yes."},
                                   "finish_reason": "stop"}]},
    dialects.RESPONSES: {"id": "resp_x", "output": [ITEM]},
    dialects.MESSAGES: {"id": "msg_x", "type": "message", "role": "assistant",
                        "content": [{"type": "text", "text": "Yes."}]},
    dialects.GENERATE: {"candidates": [{"content": {"parts": [{"text": "Yes."}]},
        "finishReason": "STOP"}]},
}  # fmt: skip


def channels_of(url, **of_b):
    """Return channels a and b for each family; `of_b` are additional fields of b."""
    return [
        channel(f"{place}-{family}", family, url, {MODEL: f"at-{place}"}, keys=["sk-up"],
                **(of_b if place == "b" else {}))
        for family in dialects.ALL
        for place in ("a", "b")
    ]  # fmt: skip


def call(gateway, family, fields, user="owner", path=""):
    """Make a usual call with these fields."""
    path = path or dialects.PATHS[family].format(model=MODEL)
    body = {**dialects.ask(family, MODEL), **fields}
    return exchange(gateway.port, "POST", path, dialects.credentials(family, SECRETS[user]), body)


class Vendor(RawUpstream):
    """A vendor that answers everything after `begin`, and records path and body of each request."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def begin(self):
        threading.Thread(target=self._answer_all, args=(self._note,), daemon=True).start()
        return self

    def _note(self, request):
        head, _, body = request.partition(b"\r\n\r\n")
        path = head.split(b" ", 2)[1].decode()
        self.asked.append((path, body.decode()))
        families = [
            family
            for family in (dialects.CHAT, dialects.RESPONSES, dialects.MESSAGES)
            if path == dialects.PATHS[family]
        ]
        return answer_of(200, ANSWERS[(*families, dialects.GENERATE)[0]], connection="keep-alive")


@pytest.fixture(scope="module")
def everything():
    with Vendor() as made:
        yield made.begin()


@pytest.fixture(scope="module")
def gateway(launch, everything):
    return launch(content(channels_of(everything.url)), {"server.workers": 2})


@pytest.mark.parametrize("family", GIVEN)
def test_what_was_not_made_here_is_refused_with_its_path(gateway, everything, family):
    fields, path = GIVEN[family]
    del everything.asked[:]
    answer = call(gateway, family, fields)
    message = dialects.check_refusal(answer, family, "E35")
    assert "x_1" in message
    if family in (dialects.MESSAGES, dialects.GENERATE):
        assert message.startswith(f"{path}: ")
    else:
        assert answer.json["error"]["param"] == path
    record = gateway.record(answer.call_id)
    assert {name: record[name] for name in ("outcome", "error_code", "channel", "cost")} == {
        "outcome": "refused", "error_code": "not_found", "channel": None, "cost": "0"
    }  # fmt: skip
    # Counting tokens must not bypass the check.
    if family in (dialects.RESPONSES, dialects.MESSAGES):
        path = dialects.PATHS[family] + (
            "/input_tokens" if family == dialects.RESPONSES else "/count_tokens"
        )
        dialects.check_refusal(call(gateway, family, fields, path=path), family, "E35")
    assert everything.asked == []


# kind: (family, a whole answer, events of a streamed one, its request, a later request that names
# the object)
CODE = {"type": "code_interpreter_call", "id": "ci_{n}", "container_id": "cntr_{n}"}
CREATED = {"type": "response.created", "response": {"id": "resp_{n}"}}
STARTED = {"type": "message_start", "message": {"id": "thr_{n}", "type": "message", "content": []}}
MADE = {
    "thread": (
        dialects.MESSAGES,
        {**ANSWERS[dialects.MESSAGES], "id": "thr_{n}"},
        [STARTED],
        {"thread": {"type": "create"}},
        {"thread": {"type": "continue", "previous_message_id": "thr_{n}"}},
    ),
    "container": (
        dialects.MESSAGES,
        {**ANSWERS[dialects.MESSAGES], "container": {"id": "container_{n}"}},
        [STARTED, {"type": "message_delta", "delta": {"container": {"id": "container_{n}"}}}],
        {},
        {"container": "container_{n}"},
    ),
    "item": (
        dialects.RESPONSES,
        {**ANSWERS[dialects.RESPONSES], "id": "resp_{n}", "output": [ITEM]},
        [CREATED, {"type": "response.output_item.added", "item": ITEM}],
        {},
        {"input": [{"type": "item_reference", "id": "msg_{n}"}]},
    ),
    "container-of-tool": (
        dialects.RESPONSES,
        {**ANSWERS[dialects.RESPONSES], "id": "resp_{n}", "output": [CODE]},
        [CREATED, {"type": "response.output_item.done", "item": CODE}],
        {"store": False},
        {"tools": [{"type": "code_interpreter", "container": "cntr_{n}"}]},
    ),
    "audio": (
        dialects.CHAT,
        {"id": "c", "choices": [{"index": 0, "finish_reason": "stop",
                                 "message": {"audio": {"id": "audio_{n}", "data": "AA=="}}}]},
        [{"id": "c", "choices": [{"index": 0, "delta": {"audio": {"id": "audio_{n}"}}}]}],
        {},
        {"messages": [{"role": "assistant", "audio": {"id": "audio_{n}"}}]},
    ),
}  # fmt: skip


def numbered(value, number):
    return json.loads(json.dumps(value).replace("{n}", number))


@contextlib.contextmanager
def asking(gateway, vendor, family, fields):
    """Make a call as the owner; yield its connection and the vendor's end."""
    with Connection(gateway.port) as connection:
        body = {**dialects.ask(family, MODEL), **fields}
        connection.request(
            "POST", dialects.PATHS[family], dialects.credentials(family, SECRETS["owner"]), body
        )
        with contextlib.closing(vendor.accept()) as peer:
            yield connection, peer


def make_whole(gateway, vendor, kind):
    """Make an object with a whole answer; return the later request that names it."""
    family, answer, _, first, later = MADE[kind]
    with asking(gateway, vendor, family, first) as (connection, peer):
        peer.send(answer_of(200, numbered(answer, f"{kind}-1"), connection="keep-alive"))
        connection.read_body(connection.read_head())
    return family, numbered(later, f"{kind}-1")


def make_streamed(gateway, vendor, kind, stack):
    """Make an object with a stream that goes on; return the later request that names it."""
    family, _, events, first, later = MADE[kind]
    asked = asking(gateway, vendor, family, {**first, "stream": True})
    connection, peer = stack.enter_context(asked)
    peer.send(STREAM_HEAD)
    for place, event in enumerate(numbered(events, f"{kind}-2")):
        peer.chunk(f"data: {json.dumps(event)}\n\n".encode())
        if not place:
            connection.read_head()
        connection.read_chunk()
    return family, numbered(later, f"{kind}-2")


def check_owned(gateway, vendor, family, request):
    """Check that only its user can use the object, and only through the channel that made it."""
    for _ in range(4):
        del vendor.asked[:]
        dialects.check_refusal(call(gateway, family, request, "other"), family, "E35")
        assert vendor.asked == []
        assert call(gateway, family, request).status == 200
        ((_, body),) = vendor.asked
        assert "at-a" in body


def test_what_an_answer_has_made_is_its_users(launch):
    """Objects of whole answers and streams; while the streams run, and after all processes were
    killed."""
    with Vendor() as vendor, contextlib.ExitStack() as stack:
        channels = channels_of(vendor.url, enabled=False)  # a makes the objects
        gateway = launch(content(channels), {"server.workers": 2}, follow=False)
        requests = [make_whole(gateway, vendor, kind) for kind in MADE]
        requests += [make_streamed(gateway, vendor, kind, stack) for kind in MADE]
        vendor.begin()
        gateway.apply({"channel": channels_of(vendor.url, enabled=True)})
        for family in (dialects.CHAT, dialects.RESPONSES, dialects.MESSAGES):
            assert wait_until(lambda f=family: reaches_b(gateway, vendor, f), 20)
        for family, request in requests:
            check_owned(gateway, vendor, family, request)
        gateway.kill()
        gateway.start()
        for family, request in requests:
            again = (gateway, family, request)
            assert wait_until(lambda again=again: call(*again).status == 200, 20)
            check_owned(gateway, vendor, family, request)


def reaches_b(gateway, vendor, family):
    body = dialects.ask(family, MODEL, f"Question {len(vendor.asked)}?")
    assert call(gateway, family, body).status == 200
    return "at-b" in vendor.asked[-1][1]

"""What a vendor keeps belongs to the user who made it, whatever it is; what was made elsewhere may
be named where a channel lists it. Two users with one upstream key between them, in four families.
Stored responses themselves: tests/gateway/test_stored_owners.py."""

import contextlib
import json
import threading

import pytest

from tests.support.client import Connection, exchange, wait_until
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MESSAGES,
    PATHS,
    RESPONSES,
    ask,
    check_refusal,
    credentials,
)
from tests.support.documents import CREDIT, channel
from tests.support.two_users import SECRETS
from tests.support.upstream import STREAM_HEAD, RawUpstream

MODEL = "kept"
FILES = "https://generativelanguage.googleapis.com/v1beta/files/"
# what is not made here: (family, fields of a request, the field's path, its id)
GIVEN = [
    (RESPONSES, {"prompt": {"id": "x_1"}}, "prompt.id"),
    (
        RESPONSES,
        {"tools": [{"type": "file_search", "vector_store_ids": ["x_1"]}]},
        "tools[0].vector_store_ids[0]",
    ),
    (
        MESSAGES,
        {"messages": [{"role": "user", "content": [
            {"type": "document", "source": {"type": "file", "file_id": "x_1"}}]}]},
        "messages.0.content.0.source.file_id",
    ),
    (
        MESSAGES,
        {"container": {"skills": [{"type": "custom", "skill_id": "x_1"}]}},
        "container.skills.0.skill_id",
    ),
    (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x_1"}}]}]},
        "messages[0].content[0].file.file_id",
    ),
    (GENERATE, {"cachedContent": "x_1"}, "cachedContent"),
    (
        GENERATE,
        {"contents": [{"parts": [{"fileData": {"fileUri": FILES + "x_1"}}]}]},
        "contents[0].parts[0].fileData.fileUri",
    ),
]  # fmt: skip


def content(url, **more):
    free = {"input": "0", "output": "0"}
    return {
        "model": [{"name": MODEL, "price": free}],
        "group": [{"name": "all"}],
        "channel": [
            channel(f"{place}-{family}", family, url, {MODEL: f"at-{place}"}, keys=["sk-up"],
                    **(more if place == "b" else {}))
            for family in ALL
            for place in ("a", "b")
        ],
        "user": [{"name": name, "balance": CREDIT} for name in SECRETS],
        "key": [
            {"user": name, "name": "main", "group": "all", "secret": secret}
            for name, secret in SECRETS.items()
        ],
    }  # fmt: skip


def of(family, fields):
    """The body of a usual call with these fields."""
    return {**ask(family, MODEL), **fields}


def call(gateway, family, body, user="owner", path=""):
    path = path or PATHS[family].format(model=MODEL)
    return exchange(gateway.port, "POST", path, credentials(family, SECRETS[user]), body)


def whole(value):
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body), body,
    )  # fmt: skip


ANSWERS = {
    CHAT: {"id": "c", "choices": [{"index": 0, "message": {"content": "Yes."},
                                   "finish_reason": "stop"}]},
    RESPONSES: {"id": "resp_x", "status": "completed", "output": []},
    MESSAGES: {"id": "msg_x", "type": "message", "role": "assistant", "content": []},
    GENERATE: {"candidates": [{"content": {"parts": [{"text": "Yes."}]}, "finishReason": "STOP"}]},
}  # fmt: skip


def any_answer(request):
    """What a vendor of each family says to whatever it is asked."""
    path = request.split(b" ", 2)[1].decode()
    for family, start in ((CHAT, "/v1/chat"), (RESPONSES, "/v1/resp"), (MESSAGES, "/v1/mess")):
        if path.startswith(start):
            return whole(ANSWERS[family])
    return whole(ANSWERS[GENERATE])


class Vendor(RawUpstream):
    """Answers everything from `begin` on, and notes path and body of what it is asked."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def begin(self):
        threading.Thread(target=self._answer_all, args=(self._note,), daemon=True).start()
        return self

    def _note(self, request):
        head, _, body = request.partition(b"\r\n\r\n")
        self.asked.append((head.split(b" ", 2)[1].decode(), body.decode()))
        return any_answer(request)


@pytest.fixture(scope="module")
def everything():
    with Vendor() as made:
        yield made.begin()


@pytest.fixture(scope="module")
def gateway(launch, everything):
    return launch(content(everything.url), {"server.workers": 2})


@pytest.fixture(scope="module")
def sharing(launch, everything):
    """Its channels b list what all may name."""
    shared = ["x_*", "files/x_*"]
    return launch(content(everything.url, shared_ids=shared), {"server.workers": 2})


@pytest.fixture(scope="module")
def passing(launch, everything):
    return launch(content(everything.url), {"routing.unknown_responses": "pass"})


NAMES = [f"{family}-{path}" for family, _, path in GIVEN]


@pytest.mark.parametrize(("family", "fields", "path"), GIVEN, ids=NAMES)
def test_what_was_not_made_here_is_refused_with_its_path(gateway, everything, family, fields, path):
    del everything.asked[:]
    answer = call(gateway, family, of(family, fields))
    message = check_refusal(answer, family, "E35")
    assert "x_1" in message
    if family in (MESSAGES, GENERATE):
        assert message.startswith(f"{path}: ")
    else:
        assert answer.json["error"]["param"] == path
    assert everything.asked == []
    record = gateway.record(answer.call_id)
    told = [record[name] for name in ("outcome", "error_code", "channel", "cost")]
    assert told == ["refused", "not_found", None, "0"]


@pytest.mark.parametrize(("family", "fields", "path"), GIVEN, ids=NAMES)
def test_a_channel_that_lists_it_is_the_only_candidate(sharing, everything, family, fields, path):
    for user in SECRETS:
        for _ in range(6):
            del everything.asked[:]
            answer = call(sharing, family, of(family, fields), user)
            assert answer.status == 200, answer.body
            ((asked, body),) = everything.asked
            assert "at-b" in asked + body and "x_1" in body
    others = json.loads(json.dumps(fields).replace("x_1", "y_1"))
    check_refusal(call(sharing, family, of(family, others)), family, "E35")


@pytest.mark.parametrize(("family", "fields", "path"), GIVEN, ids=NAMES)
def test_pass_sends_it_on_as_before(passing, everything, family, fields, path):
    answer = call(passing, family, of(family, fields))
    if path == "cachedContent":  # which of the two accounts has it nobody knows
        check_refusal(answer, family, "E35")
    else:
        assert answer.status == 200, answer.body


def test_addresses_are_no_ids(gateway):
    image = {"type": "image", "source": {"type": "url", "url": "https://files.example/file_id"}}
    turn = [{"role": "user", "content": [image]}]
    assert call(gateway, MESSAGES, of(MESSAGES, {"messages": turn})).status == 200
    film = {"contents": [{"parts": [{"fileData": {"fileUri": "https://youtu.be/x"}}]}]}
    assert call(gateway, GENERATE, of(GENERATE, film)).status == 200


# (family, a whole answer, the events of a streamed one, a later request, its field's path)
ITEM = {"type": "message", "id": "msg_{n}", "role": "assistant", "content": []}
CODE = {"type": "code_interpreter_call", "id": "ci_{n}", "container_id": "cntr_{n}"}
MADE = [
    (
        MESSAGES,
        {**ANSWERS[MESSAGES], "id": "msg_{n}"},
        [{"type": "message_start", "message": {"id": "msg_{n}", "type": "message", "content": []}}],
        {"thread": {"type": "create"}},
        {"thread": {"type": "continue", "previous_message_id": "msg_{n}"}},
    ),
    (
        MESSAGES,
        {**ANSWERS[MESSAGES], "container": {"id": "container_{n}"}},
        [
            {"type": "message_start", "message": {"id": "m", "type": "message", "content": []}},
            {"type": "message_delta", "delta": {"container": {"id": "container_{n}"}}},
        ],
        {},
        {"container": "container_{n}"},
    ),
    (
        RESPONSES,
        {**ANSWERS[RESPONSES], "id": "resp_{n}", "output": [ITEM]},
        [
            {"type": "response.created", "response": {"id": "resp_{n}"}},
            {"type": "response.output_item.added", "item": ITEM},
        ],
        {},
        {"input": [{"type": "item_reference", "id": "msg_{n}"}]},
    ),
    (
        RESPONSES,
        {**ANSWERS[RESPONSES], "id": "resp_{n}", "output": [CODE]},
        [
            {"type": "response.created", "response": {"id": "resp_{n}"}},
            {"type": "response.output_item.done", "item": CODE},
        ],
        {"store": False},
        {"tools": [{"type": "code_interpreter", "container": "cntr_{n}"}]},
    ),
    (
        CHAT,
        {"id": "c", "choices": [{"index": 0, "message": {"audio": {"id": "audio_{n}"}},
                                 "finish_reason": "stop"}]},
        [{"id": "c", "choices": [{"index": 0, "delta": {"audio": {"id": "audio_{n}"}}}]}],
        {},
        {"messages": [{"role": "assistant", "audio": {"id": "audio_{n}"}}]},
    ),
]  # fmt: skip
KINDS = ["thread", "container", "item", "container-of-tool", "audio"]


def numbered(value, number):
    return json.loads(json.dumps(value).replace("{n}", number))


def check_owned(gateway, vendor, family, request):
    """Its user alone gets it, at the one place that made it."""
    for _ in range(4):
        del vendor.asked[:]
        check_refusal(call(gateway, family, request, "other"), family, "E35")
        assert vendor.asked == []
        assert call(gateway, family, request).status == 200
        ((_, body),) = vendor.asked
        assert "at-a" in body


@pytest.mark.parametrize(("family", "answer", "events", "first", "later"), MADE, ids=KINDS)
def test_what_an_answer_has_made_is_its_users(launch, family, answer, events, first, later):
    """Whole and streamed; while the stream runs, and after every process was killed."""
    requests = [of(family, numbered(later, number)) for number in ("1", "2")]
    with Vendor() as vendor:
        document = content(vendor.url)
        for one in document["channel"]:
            one["enabled"] = one["name"].startswith("a-")  # it makes them
        gateway = launch(document, {"server.workers": 2}, follow=False)
        with asking(gateway, family, of(family, first)) as connection:
            with contextlib.closing(vendor.accept()) as peer:
                peer.send(whole(numbered(answer, "1")))
            connection.read_body(connection.read_head())
        streamed = asking(gateway, family, of(family, {**first, "stream": True}))
        with streamed as connection, contextlib.closing(vendor.accept()) as peer:
            peer.send(STREAM_HEAD)
            for place, event in enumerate(numbered(events, "2")):
                peer.chunk(f"data: {json.dumps(event)}\n\n".encode())
                if not place:
                    connection.read_head()
                connection.read_chunk()
            vendor.begin()
            for one in document["channel"]:
                one["enabled"] = True
            gateway.apply(document)
            assert wait_until(lambda: reaches_b(gateway, vendor, family), 20)
            for request in requests:
                check_owned(gateway, vendor, family, request)
            gateway.kill()
        gateway.start()
        for request in requests:
            assert wait_until(lambda: call(gateway, family, request).status == 200, 20)  # noqa: B023
            check_owned(gateway, vendor, family, request)


@contextlib.contextmanager
def asking(gateway, family, body):
    with Connection(gateway.port) as connection:
        path, headers = PATHS[family], credentials(family, SECRETS["owner"])
        connection.request("POST", path, headers, body)
        yield connection


def reaches_b(gateway, vendor, family):
    assert call(gateway, family, ask(family, MODEL, f"Question {len(vendor.asked)}?")).status == 200
    return "at-b" in vendor.asked[-1][1]


def test_counting_tokens_is_no_way_round(gateway, everything):
    for family, fields, _ in GIVEN[:4]:
        path = PATHS[family] + ("/input_tokens" if family == RESPONSES else "/count_tokens")
        body = of(family, fields)
        del body["max_output_tokens" if family == RESPONSES else "max_tokens"]
        del everything.asked[:]
        check_refusal(call(gateway, family, body, path=path), family, "E35")
        assert everything.asked == []

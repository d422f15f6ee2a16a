"""Client set-up: snippets, the base-URL checker, the test call to a relay that a test plays."""

import html
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from handlers.hub.keys import setup
from store.db.audit import entries
from store.values.ids import new_ulid
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.overview_world import book, call, edit
from tests.support.client import wait_until
from tests.support.ports import free_port

pytestmark = pytest.mark.usefixtures("world")

SECRET = "sk-pasted-by-its-owner-0123456789"
DELTAS = ({"role": "assistant"}, {"content": "Hello "}, {"content": "there."})
TEXT = {"type": "response.output_text.delta"}
EVENTS = {
    "/v1/chat/completions": [
        *({"choices": [{"delta": delta}]} for delta in DELTAS),
        {"choices": []},
    ],
    "/v1/responses": [
        *(TEXT | {"delta": "Hello "}, TEXT | {"delta": "there."}),
        {"type": "response.function_call_arguments.delta", "delta": "{}"},
    ],
    "/v1/messages": [
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hello there."}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    ],
    "/v1beta/models/gpt-5:streamGenerateContent": [
        {"candidates": [{"content": {"parts": [{"text": "Hello "}, {"text": "there."}]}}]}
    ],
}


class Relay:
    """Answers as the relay does, and notes what it was asked."""

    def __init__(self):
        self.port, self.asked, self.call_id, self.status = free_port(), [], new_ulid(), 200
        self.message = "no <b>such</b> model"
        self.wait = threading.Event()
        self.wait.set()
        relay = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                size = int(self.headers["Content-Length"])
                relay.asked.append((self.path, self.headers, json.loads(self.rfile.read(size))))
                relay.wait.wait(10)
                events = EVENTS[self.path.partition("?")[0]]
                body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
                if relay.status != 200:
                    said = {"error": {"message": relay.message}}
                    body = json.dumps(said, separators=(",", ":"))
                self.send_response(relay.status)
                self.send_header("x-request-id", relay.call_id)
                self.end_headers()
                self.wfile.write((body + "data: [DONE]\n\n").encode())

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self.wait.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def relay():
    made = Relay()
    yield made
    made.close()


@pytest.fixture
def hub(serve, relay, monkeypatch):
    monkeypatch.setattr(setup, "RECORD_WAIT_S", 0.3)
    public = "https://gate.example.com"
    return serve(server={"port": relay.port, "public_url": public}, hub={"public_url": ""})


def ask(browser, **body):
    body = {"secret": SECRET, "model": "gpt-5", "client": "openai"} | body
    return browser.api("POST", "/api/setup/test", body)


@pytest.mark.parametrize(
    ("client", "path", "header"),
    [
        ("openai", "/v1/chat/completions", "authorization"),
        ("codex", "/v1/responses", "authorization"),
        ("claude-code", "/v1/messages", "x-api-key"),
        ("gemini-cli", "/v1beta/models/gpt-5:streamGenerateContent?alt=sse", "x-goog-api-key"),
    ],
)
def test_a_call_as_each_client_sends_it(alice, relay, db, client, path, header):
    book(db, call(db, id=relay.call_id, cost_nanos=10**8, status=200))
    answer = ask(alice, client=client)
    assert answer.status == 200, answer.text
    [(asked, headers, body)] = relay.asked
    assert asked == path and headers[header].endswith(SECRET)
    assert "models" in path or body["model"] == "gpt-5"
    shown = answer.json
    assert (shown["status"], shown["text"]) == (200, "Hello there.")
    assert shown["request_id"] == relay.call_id
    assert shown["total_ms"] >= shown["first_byte_ms"] >= 0
    assert (shown["record"]["id"], shown["record"]["cost"]) == (relay.call_id, "0.1")
    assert "channel" not in shown["record"] and SECRET not in answer.text
    [row] = [row for row in entries(db, 9) if row["action"] == "test"]
    after = {"client": client, "status": 200, "request_id": relay.call_id}
    line = {"actor": "alice", "kind": "model", "name": "gpt-5", "after": after}
    assert {name: row[name] for name in line} == line


def test_an_error_is_shown_as_it_came_and_no_record_of_others(alice, relay, db):
    book(db, call(db, user="carol", id=relay.call_id))
    assert ask(alice).json["record"] is None
    relay.status = 404
    shown = ask(alice).json
    assert shown["status"] == 404
    assert shown["text"].startswith('{"error":{"message":"no <b>such</b>')
    fields = [("client", "codex"), ("model", "gpt-5"), ("secret", SECRET)]
    page = alice.send("/setup/test", fields)
    assert page.status == 200 and "no &lt;b&gt;such" in page.text and SECRET not in page.text
    relay.close()
    shown = ask(alice).json
    assert shown["status"] is None and shown["error"] and shown["record"] is None


def test_a_test_call_without_enough_money_links_the_wallet(alice, relay, db):
    relay.status = 429
    relay.message = "Too little: 0.001 USD is left, and it needs at least 0.0043 USD."
    refusal = {"outcome": "refused", "error_code": "insufficient_quota", "status": 429}
    book(db, call(db, id=relay.call_id, cost_nanos=0, error_message=relay.message, **refusal))
    fields = [("client", "openai"), ("model", "gpt-5"), ("secret", SECRET)]
    page = alice.send("/setup/test", fields)
    result = page.text.partition("data-result")[2].partition("</section>")[0]
    assert relay.message in result
    assert 'href="/wallet"' in result and 'href="/status"' not in result


def test_what_is_not_called(alice, relay):
    for body in (
        {"secret": ""},
        {"secret": "sk-slc-…x8Tq"},
        {"secret": f"{SECRET}\r\nX: 1"},
        {"secret": 5},
        {"model": ""},
        {"client": "telnet"},
    ):
        answer = ask(alice, **body)
        assert (answer.status, answer.json["error"]["field"]) == (400, next(iter(body)))
    assert relay.asked == []


def test_a_key_is_not_used_from_elsewhere_than_its_networks(alice, relay):
    made = {}
    for name, network in (("here", "127.0.0.0/8"), ("elsewhere", "203.0.113.0/24")):
        body = {"name": name, "networks": [network]}
        made[name] = alice.api("POST", "/api/keys", body).json["secret"]
    refused = ask(alice, secret=made["elsewhere"])
    assert (refused.status, refused.json["error"]["field"]) == (403, "secret")
    assert relay.asked == []
    assert ask(alice, secret=made["here"]).status == 200


def test_one_call_at_a_time(alice, relay, hub):
    relay.wait.clear()
    other = Browser(hub.port)
    other.cookies, other.xsrf = dict(alice.cookies), alice.xsrf
    first = threading.Thread(target=ask, args=(other,))
    first.start()
    assert wait_until(lambda: relay.asked)
    answer = ask(alice)
    assert answer.status == 429 and answer.headers["Retry-After"] == "5"
    relay.wait.set()
    first.join(10)
    assert ask(alice).status == 200


def test_a_base_url_is_checked(alice):
    body = {"url": "https://gate.example.com/v1/messages"}
    checked = alice.api("POST", "/api/setup/check-url", body).json
    verdict = {one["kind"]: (one["right"], one["asks"]) for one in checked["verdicts"]}
    assert checked["problem"] is None
    assert verdict["messages"] == (False, "/v1/messages/v1/messages")
    assert verdict["full_messages"] == (True, "/v1/messages")
    for wrong in ({}, {"url": ""}, {"url": 5}):
        assert alice.api("POST", "/api/setup/check-url", wrong).status == 400
    page = alice.get("/setup?url=https%3A%2F%2Fgate.example.com%2Fv1").text
    assert "Correct as it is." in page and '<span class="wavy">/v1/messages</span>' in page
    page = alice.get("/setup?url=ftp://<script>").text
    assert "not a URL" in page and "<script>" not in page.split("</head>")[1]


def test_the_page_has_real_values(alice, carol, db):
    page = carol.get("/setup")
    assert page.status == 200 and "no keys yet" in page.text and "/keys/new" in page.text
    assert carol.get("/setup/test").status == 303
    secret = alice.api("POST", "/api/keys", {"name": "laptop", "group": "coding"}).json["secret"]
    text = re.sub(r"<[^>]+>", "", html.unescape(alice.get("/setup?model=gpt-5-mini").text))
    shown = f"{secret[:10]}…{secret[-4:]}"
    for line in (
        "export ANTHROPIC_BASE_URL=https://gate.example.com\n",
        f"$env:ANTHROPIC_AUTH_TOKEN = '{shown}'",
        'set "ANTHROPIC_MODEL=gpt-5-mini"',
        f'baseURL: "https://gate.example.com/v1", apiKey: "{shown}"',
        "Rule 1: base URL with /v1.",
    ):
        assert line in text, line
    assert secret not in text
    edit(db, Path(), '[[channel]]\nname = "secret-account"\ndraining = true')
    text = alice.get("/setup?model=gpt-5").text
    assert "gpt-5 is disabled in coding" in text and "secret-account" not in text

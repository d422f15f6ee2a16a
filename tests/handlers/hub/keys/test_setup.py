"""Client set-up: snippets, the base-URL checker, the test call to a relay that the test
controls."""

import html
import re
from pathlib import Path

import pytest

from store.db.audit import entries
from store.values.grants import GRANT_HEADER, GrantMaker
from store.values.ids import now_ms
from tests.handlers.hub.conftest import COOKIE_SECRETS
from tests.handlers.hub.overview_world import book, call, edit

pytestmark = pytest.mark.usefixtures("world")


@pytest.fixture
def hub(with_relay):
    return with_relay


def ask(browser, key_id, **body):
    body = {"key": key_id, "model": "gpt-5", "client": "openai"} | body
    return browser.api("POST", "/api/setup/test", body)


@pytest.mark.parametrize(
    ("client", "path"),
    [
        ("openai", "/v1/chat/completions"),
        ("codex", "/v1/responses"),
        ("claude-code", "/v1/messages"),
        ("gemini-cli", "/v1beta/models/gpt-5:streamGenerateContent?alt=sse"),
    ],
)
def test_a_call_as_each_client_sends_it(alice, key, relay, db, client, path):
    book(db, call(db, id=relay.call_id, cost_nanos=10**8, status=200))
    answer = ask(alice, key, client=client)
    assert answer.status == 200, answer.text
    [(asked, headers, body)] = relay.asked
    assert asked == path and not {"authorization", "x-api-key", "x-goog-api-key"} & {*headers}
    grant = GrantMaker(COOKIE_SECRETS, "run").read(headers[GRANT_HEADER], now_ms=now_ms())
    assert (grant.key_id, grant.client_ip) == (key, "127.0.0.1")
    assert "models" in path or body["model"] == "gpt-5"
    shown = answer.json
    assert (shown["status"], shown["text"]) == (200, "Hello there.")
    assert shown["request_id"] == relay.call_id
    assert shown["total_ms"] >= shown["first_byte_ms"] >= 0
    assert (shown["record"]["id"], shown["record"]["cost"]) == (relay.call_id, "0.1")
    assert "channel" not in shown["record"]
    [row] = [row for row in entries(db, 9) if row["action"] == "test"]
    after = {"client": client, "status": 200, "request_id": relay.call_id}
    line = {"actor": "alice", "kind": "model", "name": "gpt-5", "after": after}
    assert {name: row[name] for name in line} == line


def test_an_error_is_shown_as_it_came_and_no_record_of_others(alice, key, relay, db):
    book(db, call(db, user="carol", id=relay.call_id))
    assert ask(alice, key).json["record"] is None
    relay.status = 404
    shown = ask(alice, key).json
    assert shown["status"] == 404
    assert shown["text"].startswith('{"error":{"message":"no <b>such</b>')
    fields = [("client", "codex"), ("model", "gpt-5"), ("key", key)]
    page = alice.send("/setup/test", fields)
    assert page.status == 200 and "no &lt;b&gt;such" in page.text
    relay.close()
    shown = ask(alice, key).json
    assert shown["status"] is None and shown["error"] and shown["record"] is None


def test_a_test_call_without_enough_money_links_the_wallet(alice, key, relay, db):
    relay.status = 429
    relay.message = "Too little: 0.001 USD is left, and it needs at least 0.0043 USD."
    refusal = {"outcome": "refused", "error_code": "insufficient_quota", "status": 429}
    book(db, call(db, id=relay.call_id, cost_nanos=0, error_message=relay.message, **refusal))
    fields = [("client", "openai"), ("model", "gpt-5"), ("key", key)]
    page = alice.send("/setup/test", fields)
    result = page.text.partition("data-result")[2].partition("</section>")[0]
    assert relay.message in result
    assert 'href="/wallet"' in result and 'href="/status"' not in result


def test_what_is_not_called(alice, key, relay, carol):
    for body, status in (
        ({"key": ""}, 400),
        ({"key": 5}, 400),
        ({"key": carol.make("hers")}, 404),
        ({"model": 5}, 400),
        ({"client": "telnet"}, 400),
    ):
        answer = ask(alice, key, **body)
        assert answer.status == status
        assert answer.json["error"]["field"] in (next(iter(body)), None)
    assert relay.asked == []


def test_without_a_model_it_is_one_native_to_the_client(alice, key, relay):
    assert ask(alice, key, model="").status == 200
    assert relay.asked[0][2]["model"] == "gpt-5"


def test_two_calls_at_a_time(alice, key, relay):
    with relay.two_running(alice, lambda twin: ask(twin, key)):
        answer = ask(alice, key)
        assert answer.status == 429 and answer.headers["Retry-After"] == "5"
    assert ask(alice, key).status == 200


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
    for line in (
        "export ANTHROPIC_BASE_URL=https://gate.example.com\n",
        "$env:ANTHROPIC_AUTH_TOKEN = 'YOUR_API_KEY'",
        'set "ANTHROPIC_MODEL=gpt-5-mini"',
        'baseURL: "https://gate.example.com/v1", apiKey: "YOUR_API_KEY"',
        "Rule 1: base URL with /v1.",
        "The rest of the path is added by IDE plug-ins. With https://gate.example.com/v1/messages, "
        "requests would go to /v1/messages/chat/completions.",
    ):
        assert line in text, line
    assert secret not in text and f"…{secret[-4:]}" not in text
    edit(db, Path(), '[[channel]]\nname = "secret-account"\ndraining = true')
    text = alice.get("/setup?model=gpt-5").text
    assert "gpt-5 is disabled in coding" in text and "secret-account" not in text

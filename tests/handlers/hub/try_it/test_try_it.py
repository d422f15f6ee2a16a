"""Try it: the page without script, and POST /api/try, with a relay that the test controls."""

import http.client
import json
import re

import pytest

from handlers.hub.web import relay_calls
from store.values.grants import GRANT_HEADER
from tests.handlers.hub.overview_world import book, call, text_of
from tests.support.client import wait_until

pytestmark = pytest.mark.usefixtures("world")


@pytest.fixture
def hub(with_relay):
    return with_relay


def ask(browser, **body):
    body = {"model": "gpt-5", "turns": [{"role": "user", "text": "Hello?"}]} | body
    return browser.api("POST", "/api/try", body)


def events_of(answer):
    """Return the events before the last one unchanged, and the facts in the last."""
    before, _, last = answer.text.rpartition("event: sluice\ndata: ")
    return before, json.loads(last)


def send(browser, **fields):
    """Send a form and return the page; a field of None is left out."""
    fields = {"model": "gpt-5", "prompt": "Hello?", "stream": "1", "do": "send"} | fields
    return browser.send("/try", [(name, value) for name, value in fields.items() if value])


def test_the_answer_comes_as_events_of_the_family_then_its_facts(alice, key, relay, db):
    facts = {"input_tokens": 12, "output_tokens": 30, "ttft_ms": 150, "status": 200}
    book(db, call(db, id=relay.call_id, cost_nanos=10**8, **facts))
    answer = ask(alice, key=key, system="Be brief.", temperature=0.5, further={"seed": 7})
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    events, last = events_of(answer)
    assert events.count("data: {") == 4 and "data: [DONE]" in events
    [(path, headers, body)] = relay.asked
    assert path == "/v1/chat/completions" and headers["User-Agent"] == "sluice-hub/try"
    assert headers[GRANT_HEADER] and "authorization" not in headers
    assert body == {
        "model": "gpt-5",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello?"},
        ],
        "stream": True,
        "seed": 7,
        "max_completion_tokens": 1024,
        "temperature": 0.5,
    }
    assert (last["id"], last["cost"], last["input_tokens"]) == (relay.call_id, "0.1", 12)
    assert (last["ttft_ms"], last["complete"], last["text"]) == (150, True, "")


def test_a_whole_answer_and_a_refusal_are_in_the_last_event(alice, key, relay, db):
    _, last = events_of(ask(alice, stream=False))
    assert last["text"] == "Whole." and not relay.asked[0][2].get("stream")
    relay.status, relay.headers = 429, {"retry-after": "7", "x-other": "1"}
    message = "Too little: 0.001 USD is left, and it needs at least 0.0043 USD."
    refusal = {"outcome": "refused", "error_code": "insufficient_quota", "status": 429}
    book(db, call(db, id=relay.call_id, cost_nanos=0, error_message=message, **refusal))
    events, last = events_of(ask(alice))
    assert events.strip() == "" and last["error_message"] == message
    assert json.loads(last["body"])["error"]["message"] == relay.message
    assert last["headers"] == {"x-request-id": relay.call_id, "retry-after": "7"}


def test_a_relay_that_is_down_or_breaks_off(alice, key, relay):
    relay.cut = True
    _, last = events_of(ask(alice))
    assert (last["status"], last["complete"]) == (200, False)
    relay.close()
    _, last = events_of(ask(alice))
    assert last["status"] is None and last["error"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            ("turns", value)
            for value in (None, [], [{"role": "user"}], [{"role": "x", "text": ""}])
        ),
        *(("key", value) for value in ("nobody's", 5)),
        *(("model", value) for value in ("gpt-9", 5)),
        *(("entry", value) for value in ("embeddings", "telnet")),
        *(("max_tokens", value) for value in ("many", 0, True)),
        *(("temperature", value) for value in (3, "1", True)),
        *(("further", value) for value in ("[1]", "{", [])),
        *(("effort", "a bit"), ("stream", "yes")),
    ],
)
def test_what_cannot_be_is_not_called(alice, key, relay, field, value):
    answer = ask(alice, **{field: value})
    assert (answer.status, answer.json["error"]["field"]) == (400, field)
    assert relay.asked == []


def test_a_key_of_somebody_else_is_none(alice, carol, relay):
    assert ask(alice, key=carol.make("hers")).status == 400
    assert ask(alice).status == 400  # without any key
    assert relay.asked == []


def test_two_at_a_time_a_user_and_twenty_in_all(alice, key, relay, hub, monkeypatch):
    with relay.two_running(alice, ask):
        refused = ask(alice)
        assert (refused.status, refused.headers["Retry-After"]) == (429, "5")
        page = send(alice)
        assert page.status == 429 and "Hello?" in page.text
        assert page.headers["Retry-After"] == "5"
        monkeypatch.setattr(relay_calls, "MAX_RUNNING", 2)
        monkeypatch.setattr(relay_calls, "MAX_OF_USER", 9)
        assert ask(alice).status == 429
    assert ask(alice).status == 200 and not hub.site.relay_calls


def test_who_leaves_stops_the_call(alice, key, relay, hub):
    relay.wait.clear()
    cookies = "; ".join(f"{name}={value}" for name, value in alice.cookies.items())
    headers = {"Cookie": cookies, "X-XSRFToken": alice.xsrf, "Content-Type": "application/json"}
    body = {"model": "gpt-5", "turns": [{"role": "user", "text": "Hello?"}]}
    connection = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=20)
    connection.request("POST", "/api/try", json.dumps(body), headers)
    connection.getresponse().read(10)
    connection.sock.close()
    connection.close()
    assert wait_until(lambda: not hub.site.relay_calls)
    relay.wait.set()
    assert relay.gone.wait(5) or wait_until(relay.gone.is_set)


def test_the_page_without_script(alice, key, relay, db):
    facts = {"input_tokens": 1200, "output_tokens": 30, "status": 200}
    book(db, call(db, id=relay.call_id, cost_nanos=10**8, **facts))
    page = alice.get(f"/try?model=gpt-5-mini&key={key}&system=Be+brief.&prompt=never")
    text = text_of(page)
    assert "laptop, coding ×0.8" in text and "own wallet, 9.9000 USD" in text
    assert '<option value="gpt-5-mini" selected>' in page.text and "Be brief." in page.text
    assert "0.20 in, 0.20 cached, 1.60 out a million" in text
    assert "never" not in page.text
    assert "SLUICE_API_KEY" in text and "https://gate.example.com/v1" in text

    page = send(alice, key=key, prompt="Is `a < b`?\n```\nif a < b:\n```")
    assert page.status == 200
    text = text_of(page)
    assert "Hello there." in text and "0.1000 USD" in text and "1,200 in, 30 out" in text
    assert '<pre class="raw code-block" tabindex="0">if a &lt; b:</pre>' in page.text
    assert f'href="/usage/{relay.call_id}"' in page.text
    turns = re.search(r'name="turns" value="([^"]*)"', page.text)[1].replace("&quot;", '"')
    page = send(alice, key=key, turns=turns.replace("&lt;", "<"), prompt="And again?")
    messages = relay.asked[-1][2]["messages"]
    assert [one["role"] for one in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"] == "Hello there." and "Calls 2" in text_of(page)


def test_two_models_answer_one_question(alice, key, relay):
    page = send(alice, do="compare")
    assert page.text.count("data-side=") == 2 and relay.asked == []
    page = send(alice, **{"with": "gpt-5-mini"}, turns='[{"role":"user","text":"Before?"}]')
    assert sorted(body["model"] for _, _, body in relay.asked) == ["gpt-5", "gpt-5-mini"]
    assert all(len(body["messages"]) == 1 for _, _, body in relay.asked)
    assert page.text.count("Hello there.") >= 2 and "Tok/s" in text_of(page)
    assert 'aria-pressed="true">One model' in send(alice, do="one").text


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("insufficient_quota", "Redeem a code"),
        ("ip_not_allowed", "Change the key"),
        ("entry_point_not_allowed", "Use the native entry point"),
        ("unsupported_parameter", "Without optional settings"),
        ("context_length_exceeded", "Clear conversation"),
        ("upstream_error", "Ask again"),
        (None, "Ask again"),
    ],
)
def test_a_refusal_says_why_and_the_way_out(alice, key, relay, db, code, remedy):
    relay.status = 400
    if code:
        refusal = {"outcome": "refused", "error_code": code, "status": 400, "output_tokens": 0}
        book(db, call(db, id=relay.call_id, cost_nanos=0, **refusal))
    page = send(alice)
    assert "HTTP 400" in page.text and "no &lt;b&gt;such" in page.text
    assert "<span>0 in, 0 out</span>" not in page.text, "tokens are unknown"
    assert re.search(rf'<(button|a) [^>]*small"[^>]*>{remedy}</', page.text)


def test_buttons_of_the_form(alice, key, relay):
    turns = json.dumps([{"role": "user", "text": "Before?"}, {"role": "assistant", "text": "Half"}])
    send(alice, do="go_on", turns=turns)
    assert relay.asked[-1][2]["messages"][-1]["content"] == "Continue."
    send(alice, do="again", turns=turns)
    assert [one["content"] for one in relay.asked[-1][2]["messages"]] == ["Before?"]
    assert "Half" not in send(alice, do="clear", turns=turns).text
    page = send(alice, do="plain", further='{"seed": 7}', temperature="1.5")
    assert "seed&quot;: 7" not in page.text.replace('{&quot;seed&quot;: 7}"', "")
    assert len(relay.asked) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": " "},
        {"further": "[]"},
        {"temperature": "warm"},
        {"turns": "[5]"},
        {"turns": json.dumps([{"role": "user", "text": "a"}] * 101)},
    ],
)
def test_a_form_that_cannot_be_sent_keeps_what_was_typed(alice, key, relay, fields):
    page = send(alice, **({"prompt": "Typed before."} | fields))
    assert page.status == 400 and "Not sent." in page.text and relay.asked == []
    assert fields.get("prompt", "Typed before.") in page.text


def test_without_a_key_or_a_model_it_leads_on(carol, alice, apply):
    page = carol.get("/try").text
    assert "No key works." in page and "/keys/new" in page
    key_id = carol.make("off", group="default")
    assert carol.api("PATCH", f"/api/keys/{key_id}", {"enabled": False}).status == 200
    page = carol.get("/try").text
    assert "1 key is disabled, expired or used up." in page and "/keys/new" not in page
    apply({"group": [{"name": "bare"}], "user": [{"name": "alice", "groups": ["bare"]}]})
    alice.make("odd", group="bare")
    assert "Group bare offers no model." in alice.get("/try").text
    assert send(alice).status == 400

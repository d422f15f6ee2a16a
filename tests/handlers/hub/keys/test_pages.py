"""The pages of keys, as a browser without scripts sees them."""

import html
import re

import pytest

from handlers.hub.keys.keys import client_of
from store.admin.export import list_objects
from store.catalog import keys, wrong_paths
from store.catalog.wrong_paths import Noticed
from store.db.database import database_ms
from store.values.key_secrets import digests
from tests.handlers.hub.overview_world import book, call

pytestmark = pytest.mark.usefixtures("world")

DOUBLED = "/v1/messages/v1/messages"
SCRIPT = "<script>alert(7)</script>"
ENDS = ("", "/edit", "/rotate", "/revoke")
FORM = {"expires": "never", "date": "", "limit": "", "limit_window": "month", "models": ""}
FORM |= {"networks": "", "rpm": "", "tpm": "", "concurrency": "", "group": "default"}


def send_form(browser, name, path="/keys/new", **fields):
    return browser.send(path, [*{**FORM, "name": name, **fields}.items()])


def secret_on(page):
    return html.unescape(re.search(r'id="secret">([^<]+)<', page.text)[1])


def opened(db, secret):
    return keys.find_key(db, digests(secret, ["pepper of the tests"]))


def wrong_path(db, key_id, path=DOUBLED):
    at_ms = database_ms(db)
    seen = Noticed(key_id, "POST", path, 14, at_ms - 9000, at_ms, "192.0.2.14", f"{SCRIPT} 1")
    wrong_paths.add(db, [seen])


def test_a_key_is_made_by_the_form_and_its_secret_is_shown_once(alice, db):
    page = alice.get("/keys")
    assert page.status == 200 and "No keys yet." in page.text and "/keys/new" in page.text
    form = alice.get("/keys/new").text
    assert 'value="coding"' in form and "×0.8" in form and 'value="hidden"' not in form
    fields = {"group": "coding", "limit": "5", "networks": "10.0.0.0/8, 192.0.2.7", "expires": "30"}
    made = send_form(alice, "laptop", models="gpt-5", rpm="60", **fields)
    assert made.status == 200 and made.headers["Cache-Control"] == "no-store"
    secret = secret_on(made)
    key = opened(db, secret)
    assert 29 < (key.expires_ms - database_ms(db)) / 86_400_000 <= 30
    shown = alice.get(f"/api/keys/{key.id}").json
    expected = {"name": "laptop", "group": "coding", "rpm": 60, "models": ["gpt-5"], "limit": "5"}
    expected |= {"limit_window": "month", "networks": ["10.0.0.0/8", "192.0.2.7/32"]}
    assert {name: shown[name] for name in expected} == expected
    for client in ("Claude Code", "Codex", "Gemini CLI", "OpenAI SDK", "curl"):
        assert client in made.text
    for path in ("/keys", f"/keys/{key.id}", "/setup", "/keys/new"):
        assert secret not in alice.get(path).text
    env = alice.send("/keys/env", [("secret", secret), ("name", "la/../top")])
    assert env.text == f"SLUICE_API_KEY={secret}\nSLUICE_BASE_URL=http://127.0.0.1:8000\n"
    assert 'filename="la-..-top.env"' in env.headers["Content-Disposition"]
    assert alice.send("/keys/env", [("secret", "x\nY=1"), ("name", "x")]).status == 400


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"name": "laptop"}, 409, "Choose another name"),
        ({"name": "x", "group": "hidden"}, 403, "you may make keys in: coding, default"),
        ({"name": "x", "expires": "date", "date": "soon"}, 400, "Choose a day to come."),
        ({"name": "x", "expires": "date", "date": "2020-01-01"}, 400, "Choose a day to come."),
    ],
)
def test_what_the_form_refuses_stays_typed(alice, db, fields, status, message):
    alice.make("laptop")
    answer = send_form(alice, models="gpt-5", **fields)
    assert answer.status == status and message in html.unescape(answer.text)
    assert 'value="gpt-5"' in answer.text and 'class="problem"' in answer.text
    assert [key["name"] for key in list_objects(db, "key")] == ["laptop"]


def test_each_wrong_field_of_the_form_has_its_problem(alice):
    text = html.unescape(send_form(alice, name="x", rpm="many", networks="300.1.1.1").text)
    assert re.search(r'id="rpm-problem">Must be a whole number', text)
    assert re.search(r'id="networks-problem">[^<]*300.1.1.1[^<]* does not appear', text)


def test_the_list_shows_and_filters(alice, db):
    used, other = alice.make("used", group="coding", limit="5"), alice.make("x2")
    agent = "claude-cli/2.1.197 (external, cli)"
    book(db, call(db, key_id=used, client_ip="192.0.2.1", user_agent=agent))
    wrong_path(db, other)
    text = alice.get("/keys").text
    for words in ("used", "×0.8", "192.0.2.1", "claude-cli 2.1.197", "Never used", DOUBLED):
        assert words in text, words
    only = alice.get("/keys?group=coding").text
    assert f"/keys/{used}" in only and f'href="/keys/{other}">x2' not in only
    assert "No keys match." in alice.get("/keys?search=nothing").text
    assert "1 of 2 keys" in alice.get("/keys?search=use").text


def test_the_list_is_sorted_and_columns_may_be_left_out(alice, db):
    dates = {"b-old": "2031-01-01T00:00:00Z", "a-new": "2032-01-01T00:00:00Z", "C-never": None}
    ids = {alice.make(name, expires_at=date): name for name, date in dates.items()}
    old, _, never = ids
    book(db, call(db, key_id=old, cost_nanos=9 * 10**8), call(db, key_id=never, ago_ms=5000))
    for query, order in (
        ("", ["b-old", "C-never", "a-new"]),
        ("?sort=name", ["a-new", "b-old", "C-never"]),
        ("?sort=expires", ["b-old", "a-new", "C-never"]),
        ("?sort=spent", ["b-old", "C-never", "a-new"]),
    ):
        text = alice.get(f"/keys{query}").text
        cells = re.findall(r'<td class="name k-name"><a href="/keys/(\w+)"', text)
        assert [ids[key_id] for key_id in cells] == order, query
    less = alice.get("/keys?hide=group,expires&sort=name").text
    columns = {"k-group": False, "k-expires": False, "k-spent": True}
    assert {column: f'{column}"' in less for column in columns} == columns
    # Removes the group from the hidden ones.
    assert 'href="/keys?sort=name&amp;hide=expires"' in less
    assert 'name="hide" value="group,expires"' in less  # a search keeps the hidden columns


def test_the_page_of_a_key(alice, carol, db):
    key_id = alice.make("laptop")
    book(db, *(call(db, key_id=key_id, ago_ms=1000 * n, ttft_ms=100 + n) for n in range(25)))
    wrong_path(db, key_id)
    text = alice.get(f"/keys/{key_id}?by=tokens").text
    assert "2.5000" in text and "25 streams" in text and "gpt-5" in text and "100.00" in text
    assert '/v1/messages<span class="wavy">/v1/messages</span>' in text
    assert "192.0.2.14" in text and SCRIPT not in text
    for path in ("", "/edit", "/rotate", "/revoke", "/disable", "/dismiss"):
        assert carol.get(f"/keys/{key_id}{path}").status == 404
        assert alice.get("/keys/no-such-key" + path).status == 404


def test_wrong_paths_are_dismissed_and_restored(alice, carol, db):
    key_id, other = alice.make("laptop"), alice.make("other")
    wrong_path(db, key_id)
    assert carol.send(f"/keys/{key_id}/dismiss", []).status == 404
    assert alice.send(f"/keys/{key_id}/dismiss", []).place == f"/keys/{key_id}"
    page = alice.get(f"/keys/{key_id}").text
    assert DOUBLED not in page and f'action="/keys/{key_id}/restore"' in page
    wrong_path(db, other, "/v1/files")  # wrong with any base URL
    text = alice.get(f"/keys/{other}").text
    assert "/v1/files" in text and "The gateway has no endpoint" in text
    assert "Wrong base URL" not in alice.get("/keys").text.split("<table")[1].split("</table>")[0]
    alice.send(f"/keys/{key_id}/restore", [])
    assert "wavy" in alice.get(f"/keys/{key_id}").text


def test_changed_by_the_form(alice, db):
    key_id = alice.make("laptop", expires_at="2031-01-01T10:30:00Z", limit="5", networks=["::1"])
    path = f"/keys/{key_id}/edit"
    form = alice.get(path).text
    assert 'value="2031-01-01"' in form and 'value="::1/128"' in form and 'value="5"' in form
    kept = {"expires": "date", "date": "2031-01-01", "networks": "::1"}
    kept |= {"expires_at": "2031-01-01T10:30:00.000Z"}
    assert send_form(alice, "", path, group="coding", tpm="9", **kept).place == f"/keys/{key_id}"
    key = alice.get(f"/api/keys/{key_id}").json
    expected = {"group": "coding", "tpm": 9, "limit": None, "networks": ["::1/128"]}
    expected |= {"expires_at": "2031-01-01T10:30:00.000Z"}
    assert {name: key[name] for name in expected} == expected
    assert "Key laptop changed." in alice.get(f"/keys/{key_id}").text
    refused = send_form(alice, "", path, limit="-3")
    assert refused.status == 400 and 'value="-3"' in refused.text
    assert send_form(alice, "", path, group="hidden").status == 403
    page = alice.send(f"/keys/{key_id}/rotate", [("overlap_s", "3600")])
    assert opened(db, secret_on(page)).id == key_id
    assert secret_on(page) not in alice.get(f"/keys/{key_id}").text
    assert alice.get(f"/api/keys/{key_id}").json["replaced_until"] is not None


def test_disabled_with_an_undo_and_revoked_when_the_name_is_typed(alice):
    key_id = alice.make("laptop")
    before = {"Referer": "https://hub.example.com/keys?search=lap"}
    assert alice.send(f"/keys/{key_id}/disable", [], **before).place == "/keys?search=lap"
    text = alice.get("/keys").text
    assert "Key laptop disabled." in text and f'action="/keys/{key_id}/enable"' in text
    other = {"Referer": "https://other.example.com/a"}
    assert alice.send(f"/keys/{key_id}/enable", [], **other).place == f"/keys/{key_id}"
    assert alice.get(f"/api/keys/{key_id}").json["enabled"]
    wrong = alice.send(f"/keys/{key_id}/revoke", [("confirm", "lap")])
    assert wrong.status == 400 and "Type laptop" in wrong.text
    assert alice.send(f"/keys/{key_id}/revoke", [("confirm", "laptop")]).place == "/keys"
    assert "Key laptop revoked." in alice.get("/keys").text
    page = alice.get(f"/keys/{key_id}").text
    assert "Revoked" in page and f"/keys/{key_id}/rotate" not in page
    assert alice.send(f"/keys/{key_id}/enable", []).status == 400


def test_to_look_and_forged_forms_change_nothing(alice, db):
    key_id = alice.make("laptop")
    before = alice.get(f"/api/keys/{key_id}").json
    for path in ("disable", "dismiss"):
        assert alice.get(f"/keys/{key_id}/{path}").status == 303
    for path in ("edit", "rotate", "revoke", "disable"):
        fields = [("name", "x"), ("confirm", "laptop")]
        assert alice.send(f"/keys/{key_id}/{path}", fields, xsrf=False).status == 403
    assert alice.get(f"/api/keys/{key_id}").json == before
    assert len(list_objects(db, "key")) == 1


def test_a_name_with_a_script_is_text_on_every_page(alice, db):
    key_id = alice.make(SCRIPT)
    for path in ("/keys", "/setup", *(f"/keys/{key_id}{end}" for end in ENDS)):
        text = alice.get(path).text
        assert SCRIPT not in text and "&lt;script&gt;alert(7)" in text, path
    assert SCRIPT not in send_form(alice, SCRIPT).text


def test_the_client_of_a_call():
    agents = ("OpenAI/Python 3.54.0", "sluice-hub-test", "A client of nobody", "x" * 500, "", None)
    clients = ["OpenAI Python 3.54.0", "sluice-hub-test", "A", "x" * 60, "", ""]
    assert [client_of(agent) for agent in agents] == clients

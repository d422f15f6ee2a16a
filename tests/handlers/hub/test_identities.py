"""Rights in the JSON API: each operation by each identity, with role and scopes together."""

import http.client
import re

import pytest

from handlers.hub.openapi.table import ADMIN, OPEN, ROWS
from handlers.hub.routes import ADMIN_PAGES
from store.db.database import first_row, transaction
from store.db.tables.users import ApiKey, User
from store.hub import tokens
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.script import CHANNEL, MODEL
from tests.handlers.hub.test_security import contents
from tests.handlers.hub.usage.calls import call, failed, put
from tests.support.ports import HOST

NOBODY, MEMBER, BOSS = None, "alice", "boss"
ALL = frozenset(("read", "keys", "admin"))

IDENTITIES = {  # the user, the scopes of the token; None: a session
    "nobody": (NOBODY, None),
    "member": (MEMBER, None),
    "member: read": (MEMBER, {"read"}),
    "member: keys": (MEMBER, {"keys"}),
    "member: read keys": (MEMBER, {"read", "keys"}),
    "administrator": (BOSS, None),
    "administrator: read": (BOSS, {"read"}),
    "administrator: keys": (BOSS, {"keys"}),
    "administrator: read keys": (BOSS, {"read", "keys"}),
    "administrator: admin": (BOSS, {"admin"}),
    "administrator of before: admin": ("demoted", {"admin"}),
    "revoked": ("revoked", ALL),
    "disabled": ("disabled", ALL),
}
OVER = {"nobody", "revoked", "disabled"}
NARROW = ("member", "member: read", "administrator: read", "administrator: read keys")
WIDE = ("administrator", "administrator: admin")


def expected(row, name):
    """Return the status of a refusal; None if the operation is not refused."""
    user, scopes = IDENTITIES[name]
    if row.scope == OPEN:
        return None
    if name in OVER:
        return 401
    if scopes is not None and row.scope not in scopes and "admin" not in scopes:
        return 403
    return 404 if row.scope == ADMIN and user != BOSS else None


@pytest.fixture
def identity(hub, db):
    """Return identity(name): a browser or a script with this identity."""

    def make(name):
        user, scopes = IDENTITIES[name]
        if scopes is None:
            browser = Browser(hub.port)
            browser.get("/sign-in")  # for the XSRF token, which is checked first
            return browser.signed_in(user) if user else browser
        owner = MEMBER if user == MEMBER else BOSS
        token_id, token = tokens.create(db, owner, sorted(scopes), actor="tester")
        if user == "revoked":
            tokens.revoke(db, token_id, actor="tester")
        if user == "demoted":
            transaction(db, lambda: User.update(role="member").where(User.name == BOSS).execute(db))
        if user == "disabled":
            transaction(db, lambda: User.update(disabled=True).where(User.name == BOSS).execute(db))
        return Browser(hub.port, token)

    return make


def status_of(browser, method, path):
    """Return (status, text) of an answer; only the status of a stream that does not end."""
    if not path.endswith("/tail"):
        answer = browser.api(method, path, None if method == "GET" else {})
        return answer.status, answer.text
    headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
    if browser.token:
        headers["Authorization"] = f"Bearer {browser.token}"
    connection = http.client.HTTPConnection(HOST, browser.port, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        return connection.getresponse().status, ""
    finally:
        connection.close()


@pytest.mark.parametrize("name", IDENTITIES)
def test_role_and_scopes_decide_of_each_operation(identity, db, name):
    browser = identity(name)
    before, wrong = contents(db), []
    for row in ROWS:
        refusal = expected(row, name)
        if refusal is None and row.method != "GET" and row.scope != OPEN:
            continue  # an allowed operation may change things: tested in the second pass
        status, text = status_of(browser, row.method, re.sub(r"\{\w+\}", "x-1", row.path))
        passed = status not in (401, 403) and "no such path" not in text
        if passed != (refusal is None) or refusal not in (None, status):
            wrong.append(f"{row.method} {row.path}: {status}, {refusal or 'not refused'} expected")
    assert wrong == []
    assert contents(db) == before  # neither refused operations nor GETs change anything
    for row in ROWS:
        if row.method != "GET" and expected(row, name) is None:
            status, text = status_of(browser, row.method, re.sub(r"\{\w+\}", "x-1", row.path))
            if status in (401, 403) or "no such path" in text:
                wrong.append(f"{row.method} {row.path}: {status}, not refused expected")
    assert wrong == []


@pytest.fixture
def others(apply, db):
    """Return texts of other users that only administrators may see, by their kind."""
    own = {"user": "boss", "name": "own", "group": "default", "secret": "sk-of-the-boss-0123456"}
    hers = {**own, "user": "carol", "name": "of-carol", "secret": "sk-of-carol-0123456789"}
    channel = {**CHANNEL, "name": "secret-account", "base_url": "http://192.0.2.55:9"}
    users = [{"name": "carol", "password": "a long password"}]
    apply({"model": [MODEL], "channel": [channel], "user": users, "key": [hers, own]})
    [key] = first_row(db, ApiKey.select(ApiKey.id).where(ApiKey.name == "of-carol"))
    places = {"channel": "secret-account", "node": "secret-node"}
    facts = {"key_id": key, "client_ip": "192.0.2.77", **places}
    good, bad = call(db, 1, "carol", **facts), failed(db, 2, "carol", **facts)
    calls = put(db, good, bad, call(db, 3, "boss", **places))
    return {
        "a call": calls[0],
        "a failed call": calls[1],
        "an address": "192.0.2.77",
        "a user": "carol",
        "a key": key,
        "a channel": "secret-account",
        "an upstream": "192.0.2.55",
        "a node": "secret-node",
        "an id of the vendor": "req_1",
    }


def seen_by(browser, others):
    """Return which of these texts occur in any answer to a GET, administrators' paths included."""
    texts = []
    for row in ROWS:
        if row.method != "GET" or row.path.endswith("/tail"):
            continue
        for word in ("a call", "a key", "a user") if "{" in row.path else ("",):
            path = re.sub(r"\{\w+\}", others.get(word, ""), row.path)
            answer = browser.api("GET", path)
            # A refusal repeats the requested name.
            texts += [answer.text] if answer.status == 200 else []
    whole = "\n".join(texts)
    return {what for what, word in others.items() if word in whole}


@pytest.mark.parametrize("name", [*NARROW, *WIDE])
def test_only_an_administrator_sees_what_belongs_to_others(identity, others, name):
    assert seen_by(identity(name), others) == (set(others) if name in WIDE else set())


def test_filters_of_administrators_need_the_scope_too(identity, others):
    browser = identity("administrator: read keys")
    for query in ("user=carol", "channel=secret-account", "upstream_request_id=req_1"):
        for path in ("", "/stats", "/errors", "/export", "/tail"):
            assert status_of(browser, "GET", f"/api/usage{path}?{query}")[0] == 400
    assert browser.get("/api/usage/stats?by=channel").status == 400
    assert [row["user"] for row in browser.get("/api/usage").json["items"]] == ["boss"]
    # Keys in any group belong to administrators.
    answer = browser.api("POST", "/api/keys", {"name": "wide", "group": "not-mine"})
    assert answer.status in (400, 403, 404)


def test_pages_take_no_token_and_those_of_administrators_no_member(identity):
    assert all(handler.admin for _, handler in ADMIN_PAGES)
    paths = [path for path, _ in ADMIN_PAGES if "(" not in path]
    script, member = identity("administrator: admin"), identity("member")
    for path in ("/", "/keys", "/usage", "/account", *paths):
        assert script.get(path).status == 303, path
    for path in paths:
        assert member.get(path).status == 404, path

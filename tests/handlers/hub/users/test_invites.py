"""Links that work once: invites and password resets, created by administrators, used at /join."""

import re

import pytest

from store.db import audit
from store.db.database import execute, transaction
from store.hub import invites
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.overview_world import text_of

PASSWORD = "a long password"


def path_of(url):
    return url[url.index("/join/") :]


def join(hub, path, name="dora", password=PASSWORD):
    browser = Browser(hub.port)
    browser.get(path)
    return browser, browser.send(path, [("name", name), ("password", password)])


@pytest.fixture
def path(api):
    body = {"role": "member", "groups": ["default"], "balance": "2.5"}
    return path_of(api.create("invites", body)["url"])


def test_an_invite_makes_a_user_once(api, hub, db, path):
    _, taken = join(hub, path, "boss")
    assert taken.status == 409 and 'id="name-problem"' in taken.text
    assert (
        "Locked out?" not in taken.text and "Locked out?" in Browser(hub.port).get("/sign-in").text
    )
    browser, answer = join(hub, path)
    assert (answer.status, answer.place) == (303, "/"), answer.text
    assert "dora" in browser.get("/account").text, "signed in"
    dora = api.get("/api/admin/users/dora").json
    assert (dora["role"], dora["groups"], dora["balance"]) == ("member", ["default"], "2.5")
    browser, again = join(hub, path, "emil")
    assert again.status == 404 and "This link is no longer valid." in again.text
    assert api.get("/api/admin/users/emil").status == 404
    [listed] = api.listed("/api/admin/invites")
    assert (listed["state"], listed["used_by"], listed["created_by"]) == ("used", "dora", "boss")
    lines = [
        (row["action"], row["actor"]) for row in audit.entries(db, 9) if row["kind"] == "invite"
    ]
    assert lines == [("use", "dora"), ("create", "boss")]
    assert path.removeprefix("/join/") not in api.get("/api/admin/audit").text


def test_what_cannot_be_is_said_beside_its_field_and_the_link_stays(hub, path):
    for name, password, field, problem in (
        ("alice", PASSWORD, "", "choose another name"),
        ("", PASSWORD, "name", ""),
        ("dora", "short", "password", ""),
    ):
        _, answer = join(hub, path, name, password)
        assert answer.status in (400, 409), (name, answer.status)
        assert problem in answer.text and PASSWORD not in answer.text
        assert not field or f'id="{field}-problem"' in answer.text
    assert join(hub, path)[1].status == 303


@pytest.mark.parametrize("end", ["withdraw", "expire"])
def test_a_link_that_has_ended_opens_nothing(api, hub, db, path, end):
    [link] = api.listed("/api/admin/invites")
    if end == "withdraw":
        assert api.call("DELETE", f"/api/admin/invites/{link['id']}").status == 204
        assert api.refused("DELETE", f"/api/admin/invites/{link['id']}")[0] == 400
    else:
        transaction(db, lambda: execute(db, 'UPDATE "hub_invites" SET "until_ms" = 1'))
    assert join(hub, path)[1].status == 404
    state = {"withdraw": "withdrawn", "expire": "expired"}[end]
    assert api.listed("/api/admin/invites")[0]["state"] == state


@pytest.mark.parametrize("change", ["role = 'member'", "disabled = 1"])
def test_a_link_ends_with_the_rights_of_whoever_made_it(hub, db, path, change):
    transaction(db, lambda: execute(db, f"UPDATE users SET {change} WHERE name = 'boss'"))
    _, answer = join(hub, path)
    assert answer.status == 404 and "no longer an administrator" in answer.text
    assert invites.listed(db)[0].state == "withdrawn"


def test_tokens_are_tried_as_seldom_as_passwords(hub, monkeypatch):
    browser = Browser(hub.port)
    monkeypatch.setattr("handlers.hub.web.throttle.NETWORK_TRIES", 3)
    answers = [browser.get(f"/join/wrong{number}") for number in range(5)]
    assert [answer.status for answer in answers] == [404] * 3 + [429] * 2
    assert answers[-1].headers["Retry-After"]


def test_a_reset_sets_the_password_and_leads_to_the_sign_in(api, boss, hub, alice):
    made = api.call("POST", "/api/admin/users/alice/reset", {})
    assert made.status == 201 and made.json["user"] == "alice"
    first, path = path_of(made.json["url"]), None
    boss.get("/admin/users/alice/reset")
    page = boss.send("/admin/users/alice/reset", [])
    assert "Shown once" in page.text
    path = path_of(re.search(r'id="link-address">([^<]*)<', page.text)[1])
    assert join(hub, first)[1].status == 404, "the earlier one ended"
    _, answer = join(hub, path, password="another long one")
    assert (answer.status, answer.place) == (303, "/sign-in")
    assert alice.get("/account").status == 303, "sessions end"
    assert Browser(hub.port).sign_in("alice", "another long one").status == 303
    assert join(hub, path, password=PASSWORD)[1].status == 404
    assert api.refused("POST", "/api/admin/users/boss/reset", {})[0] == 400
    assert api.refused("POST", "/api/admin/users/nobody/reset", {})[0] == 404


def test_the_page_makes_lists_and_withdraws_an_invite(boss, hub):
    assert "No invite yet." in text_of(boss.get("/admin/invites"))
    form = boss.get("/admin/invites?new=1").text
    assert 'value="default" checked' in form
    bad = boss.send("/admin/invites", [("role", "member"), ("groups", "none"), ("balance", "x")])
    assert bad.status == 400 and 'id="balance-problem"' in bad.text
    made = boss.send("/admin/invites", [("role", "admin"), ("groups", "default"), ("balance", "")])
    assert "Shown once: anybody who has it can join." in made.text
    path = path_of(re.search(r'id="link-address">([^<]*)<', made.text)[1])
    page = boss.get("/admin/invites")
    assert path.removeprefix("/join/") not in page.text and "Waiting" in page.text
    withdraw = re.search(r'action="(/admin/invites/\w+/withdraw)"', page.text)[1]
    assert boss.send(withdraw, []).status == 303
    assert Browser(hub.port).get(path).status == 404


def test_two_holders_at_once_make_one_user(db, api, path):
    token = path.removeprefix("/join/")
    assert invites.find(db, token).state == "waiting"
    invites.use_up(db, token, "first")
    with pytest.raises(Exception, match="no longer valid"):
        invites.use_up(db, token, "second")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"role": "owner"}, "role"),
        ({"groups": ["none"]}, "groups"),
        ({"groups": "default"}, "groups"),
        ({"balance": "x"}, "balance"),
        ({"team": "a"}, "team"),
    ],
)
def test_terms_that_cannot_be_are_refused(api, body, field):
    assert api.refused("POST", "/api/admin/invites", body)[:2] == (400, field)

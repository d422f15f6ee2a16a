"""⌘K: the results of a search text, for each kind of user."""

import pytest

from tests.handlers.hub.usage.calls import call, put


@pytest.fixture
def carol(hub, boss):
    assert boss.api("POST", "/api/admin/users", {"name": "carol"}).status == 201
    return hub.signed_in("carol")


def found(browser, text):
    return [
        (item["kind"], item["name"])
        for item in browser.api("GET", f"/api/find?q={text}").json["items"]
    ]


def test_members_find_their_keys_pages_and_models(hub, alice, carol):
    key_id = alice.make("laptop of alice")
    carol.make("laptop of carol")
    assert found(alice, "LAPTOP") == [("key", "laptop of alice")]
    item = alice.api("GET", "/api/find?q=laptop").json["items"][0]
    assert item == {"kind": "key", "name": "laptop of alice", "path": f"/keys/{key_id}"}
    assert found(alice, "wall") == [("page", "Wallet")]
    assert not any(kind in ("user", "channel") for kind, _ in found(alice, "a"))
    assert found(alice, "") == found(alice, "nosuchthingatall") == []


def test_administrators_find_everything(boss, alice):
    alice.make("laptop of alice")
    item = boss.api("GET", "/api/find?q=laptop").json["items"][0]
    assert (item["user"], item["kind"]) == ("alice", "key")
    assert boss.get(item["path"]).status == 200
    assert ("user", "alice") in found(boss, "alice")
    assert found(boss, "Audit") == [("page", "Audit log")]
    for number in range(9):
        alice.make(f"spare {number}")
    assert len(found(boss, "s")) == 8 and found(boss, "s")[0][0] == "page"


def test_models_of_other_groups_stay_hidden(boss, alice):
    secret = {"name": "secret-model", "price": {"input": "1", "output": "1"}}
    assert boss.api("POST", "/api/admin/models", secret).status == 201
    assert (
        boss.api("POST", "/api/admin/groups", {"name": "inner", "models": ["secret-model"]}).status
        == 201
    )
    # Her group offers all models, but no channel serves this one to it, so /models does not show
    # it.
    channel = {"name": "of-inner", "vendor": "demo", "base_url": "http://127.0.0.1:9"}
    channel |= {"family": "chat_completions", "keys": ["sk"], "models": {"secret-model": "x"}}
    channel["groups"] = ["inner"]
    assert boss.api("POST", "/api/admin/channels", channel).status == 201
    assert found(alice, "secret") == []
    assert "secret-model" not in alice.get("/api/models").text
    wide = {**channel, "name": "of-all", "groups": ["inner", "default"]}
    assert boss.api("POST", "/api/admin/channels", wide).status == 201
    assert found(alice, "secret") == [("model", "secret-model")]
    assert "secret-model" in alice.get("/api/models").text
    public = {"name": "public-model", "price": {"input": "1", "output": "1"}}
    assert boss.api("POST", "/api/admin/models", public).status == 201
    default = boss.api("GET", "/api/admin/groups/default").json
    change = {"models": ["public-model"], "version": default["version"]}
    assert boss.api("PATCH", "/api/admin/groups/default", change).status == 200
    assert found(alice, "secret") == []
    assert ("model", "secret-model") in found(boss, "secret")


@pytest.mark.parametrize("part", ["id", "client"])
def test_a_call_by_its_id_alone(hub, alice, carol, part):
    db = hub.site.db
    call_id = put(db, call(db, 1, client_request_id="client-id-of-a-call-0001"))[0]
    text = call_id if part == "id" else "client-id-of-a-call-0001"
    assert found(alice, text) == [("call", call_id)]
    assert found(carol, text) == []


def test_the_page_works_without_script(alice):
    alice.make("<b>laptop")
    page = alice.get("/find?q=laptop").text
    assert "&lt;b&gt;laptop" in page and 'href="/keys/' in page
    assert "Nothing is called" in alice.get("/find?q=nowhere").text

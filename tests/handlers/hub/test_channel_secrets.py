"""Changes over HTTP that would reveal a channel's stored secrets, or which files exist."""

import os

import pytest

from operations.edits import editor
from store.admin.document import parse
from store.catalog.catalog import load_snapshot
from tests.handlers.hub.overview_world import SEALING
from tests.handlers.hub.script import CHANNEL, MODEL, UPSTREAM_KEY
from tests.support.certificates import Authority

PROXY = "http://127.0.0.1:3128"
PLACE = "/api/admin/channels/main"
HEADERS = {"x-org": "secret-org"}
KEYS = {"keys": [UPSTREAM_KEY]}


@pytest.fixture
def command(api, db):
    """Return command(field=text …), which changes the channel main as a command does."""
    api.create("models", MODEL)
    api.create("channels", CHANNEL | {"extra_headers": HEADERS})
    return lambda **edits: editor(db, SEALING, "operator").change("channel", "main", edits)


def test_a_new_origin_needs_keys_and_headers_again(api, command):
    before = api.get(PLACE).json
    for move in (
        {"base_url": "http://127.0.0.2:9"},
        {"base_url": "https://127.0.0.1:9"},
        {"base_url": "http://127.0.0.1:90/path"},
        {"proxy": PROXY},
    ):
        for secrets in ({}, KEYS, {"extra_headers": HEADERS}):
            status, field, message = api.refused("PATCH", PLACE, move | secrets)
            assert (status, field) == (400, "keys") and next(iter(move)) in message
    assert api.get(PLACE).json == before
    assert api.call("PATCH", PLACE, move | KEYS | {"extra_headers": HEADERS}).status == 200


def test_only_another_origin_needs_secrets(api, command, tmp_path):
    command(proxy="http://one:login@127.0.0.1:3128")
    without = {"keys": [], "extra_headers": {}, "base_url": "http://127.0.0.2:9"}
    for changes in (
        {"base_url": "http://127.0.0.1:9/other/path", "proxy": "http://a:b@127.0.0.1:3128"},
        without,
        {"base_url": "http://127.0.0.3:9"},
    ):
        assert api.call("PATCH", PLACE, changes).status == 200
    command(ca_file=str(Authority(tmp_path).ca_file), keys=UPSTREAM_KEY)
    for field in ("proxy", "ca_file"):
        assert api.refused("PATCH", PLACE, {field: None})[:2] == (400, "keys")


def test_the_form_refuses_it_too_and_commands_do_not(boss, db, command, tmp_path):
    fields = {"vendor": "openai-compatible", "family": "chat_completions", "enabled": "true"}
    form = [*fields.items(), ("base_url", "http://127.0.0.2:9")]
    answer = boss.send("/admin/channels/main/edit", form)
    assert answer.status == 400 and 'id="f-keys-problem"' in answer.text
    command(base_url="http://127.0.0.2:9", proxy=PROXY)
    document = f'[[channel]]\nname = "main"\nbase_url = "http://127.0.0.3:9"\nproxy = "{PROXY}0"'
    assert len(editor(db, SEALING, "operator").apply(parse(document, {}, tmp_path)).changes) == 1


def test_paths_are_refused_unopened_and_all_with_one_answer(api, boss, command, tmp_path):
    ca_file = str(Authority(tmp_path).ca_file)
    os.mkfifo(tmp_path / "fifo")
    paths = [ca_file, str(tmp_path / "fifo"), str(tmp_path / "none"), "/proc/self/fd/0", ["/x"]]
    answers = {api.refused("PATCH", PLACE, {"ca_file": path}) for path in paths}
    assert len(answers) == 1 and answers.pop()[:2] == (400, "ca_file")
    body = CHANNEL | {"name": "other", "ca_file": ca_file}
    assert api.refused("POST", "/api/admin/channels", body)[:2] == (400, "ca_file")
    command(ca_file=ca_file)
    assert f'value="{ca_file}"' in boss.get("/admin/channels/main/edit").text
    assert ca_file not in boss.get("/admin/channels?new&like=main").text
    os.unlink(ca_file)
    assert api.call("PATCH", PLACE, {"ca_file": ca_file, "priority": 3}).status == 200


def test_a_proxy_that_was_set_over_http_is_guarded_until_a_command_sets_it(api, db, command):
    def guarded():
        [channel] = load_snapshot(db, SEALING.cipher).channels
        return channel.route.guarded

    again = {"proxy": PROXY, "extra_headers": HEADERS} | KEYS
    assert api.call("PATCH", PLACE, again).status == 200
    assert guarded()
    command(priority="1")
    assert guarded()
    command(proxy=PROXY)
    assert not guarded()
    assert api.call("PATCH", PLACE, {"proxy": PROXY, "priority": 2}).status == 200
    assert not guarded()

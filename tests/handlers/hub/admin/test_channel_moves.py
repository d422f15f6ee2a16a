"""Changes over HTTP that would show stored secrets of a channel, or which files there are."""

import os

import pytest

from operations import first_steps
from operations.edits import editor
from store.admin.document import parse
from store.admin.objects import Sealing
from store.catalog.catalog import load_snapshot
from store.values.cipher import Cipher
from store.values.errors import Refused
from tests.handlers.hub.admin.script import CHANNEL, MODEL, UPSTREAM_KEY
from tests.support.certificates import Authority

PROXY = "http://127.0.0.1:3128"
PLACE = "/api/admin/channels/main"
HEADERS = {"x-org": "secret-org"}


@pytest.fixture
def sealing():
    return Sealing(Cipher(["cipher key of the tests"]), ["pepper of the tests"])


@pytest.fixture
def command(db, sealing):
    """What a command does to the channel."""
    made = editor(db, sealing, "operator")
    return lambda **edits: made.set_fields("channel", "main", edits)


@pytest.fixture
def channel(api, command, tmp_path):
    assert api.call("POST", "/api/admin/models", MODEL).status == 201
    body = CHANNEL | {"extra_headers": HEADERS}
    assert api.call("POST", "/api/admin/channels", body).status == 201
    return command


MOVES = [
    {"base_url": "http://127.0.0.2:9"},
    {"base_url": "https://127.0.0.1:9"},
    {"base_url": "http://127.0.0.1:90/path"},
    {"proxy": PROXY},
]


@pytest.mark.parametrize("move", MOVES)
def test_a_new_place_needs_keys_and_headers_again(api, channel, move):
    before = api.get(PLACE).json
    for given in ({}, {"keys": [UPSTREAM_KEY]}, {"extra_headers": HEADERS}):
        status, field, told = api.refused("PATCH", PLACE, move | given)
        assert (status, field) == (400, "keys") and next(iter(move)) in told
    assert api.get(PLACE).json == before
    whole = move | {"keys": [UPSTREAM_KEY], "extra_headers": HEADERS}
    assert api.call("PATCH", PLACE, whole).status == 200


def test_a_proxy_that_goes_or_certificates_that_go_are_a_new_place(api, channel, tmp_path):
    channel(proxy=PROXY, ca_file=str(Authority(tmp_path).ca_file))
    for field in ("proxy", "ca_file"):
        assert api.refused("PATCH", PLACE, {field: None})[:2] == (400, "keys")


def test_what_stays_at_its_place_needs_nothing(api, channel):
    channel(proxy="http://one:login@127.0.0.1:3128")
    changes = {"base_url": "http://127.0.0.1:9/other/path", "proxy": "http://a:b@127.0.0.1:3128"}
    assert api.call("PATCH", PLACE, changes).status == 200
    without = {"keys": [], "extra_headers": {}, "base_url": "http://127.0.0.2:9"}
    assert api.call("PATCH", PLACE, without).status == 200
    assert api.call("PATCH", PLACE, {"base_url": "http://127.0.0.3:9"}).status == 200


def test_the_form_tells_it_beside_the_keys(boss, channel):
    fields = {"vendor": "openai-compatible", "family": "chat_completions", "enabled": "true"}
    sent = [*fields.items(), ("base_url", "http://127.0.0.2:9")]
    answer = boss.send("/admin/channels/main/edit", sent)
    assert answer.status == 400 and 'id="f-keys-problem"' in answer.text


def test_the_first_run_takes_no_stored_key_to_another_place(db, sealing, channel):
    vendor, models = "openai-compatible", ["gpt-4.1"]
    wanted = first_steps.FirstChannel(vendor, "main", "default", models, "http://127.0.0.2:9")
    with pytest.raises(Refused, match="keys"):
        first_steps.make_channel(db, sealing, "boss", wanted)


def test_commands_move_channels_as_ever(db, sealing, channel, tmp_path):
    channel(base_url="http://127.0.0.2:9", proxy=PROXY)
    document = f'[[channel]]\nname = "main"\nbase_url = "http://127.0.0.3:9"\nproxy = "{PROXY}0"'
    assert len(editor(db, sealing, "operator").apply(parse(document, {}, tmp_path)).changes) == 1


def test_paths_are_not_taken_and_tell_nothing(api, boss, channel, tmp_path):
    ca_file = str(Authority(tmp_path).ca_file)
    os.mkfifo(tmp_path / "fifo")
    paths = [ca_file, str(tmp_path / "fifo"), str(tmp_path / "none"), "/proc/self/fd/0", ["/x"]]
    answers = {api.refused("PATCH", PLACE, {"ca_file": path}) for path in paths}
    assert len(answers) == 1 and answers.pop()[:2] == (400, "ca_file")
    body = CHANNEL | {"name": "other", "ca_file": ca_file}
    assert api.refused("POST", "/api/admin/channels", body)[:2] == (400, "ca_file")
    channel(ca_file=ca_file)
    assert f'value="{ca_file}"' in boss.get("/admin/channels/main/edit").text
    assert ca_file not in boss.get("/admin/channels?new&like=main").text
    os.unlink(ca_file)
    assert api.call("PATCH", PLACE, {"ca_file": ca_file, "priority": 3}).status == 200


def test_a_proxy_that_was_set_over_http_is_guarded_until_a_command_sets_it(
    api, db, sealing, channel
):
    def guarded():
        [loaded] = load_snapshot(db, sealing.cipher).channels
        return loaded.route.guarded

    again = {"proxy": PROXY, "keys": [UPSTREAM_KEY], "extra_headers": HEADERS}
    assert api.call("PATCH", PLACE, again).status == 200
    assert guarded()
    channel(priority="1")
    assert guarded()
    channel(proxy=PROXY)
    assert not guarded()
    assert api.call("PATCH", PLACE, {"proxy": PROXY, "priority": 2}).status == 200
    assert not guarded()

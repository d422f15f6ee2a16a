"""`channel test`: real calls to the scripted vendor."""

import json
import sys

import pytest

from tests.commands.conftest import UPSTREAM_KEY, document
from tests.upstream import ScriptedUpstream

FAMILIES = ("chat_completions", "messages")


@pytest.fixture(scope="module")
def upstream():
    with ScriptedUpstream() as vendor:
        yield vendor


@pytest.fixture
def channels(installation, upstream):
    """A channel of each family, whose models are scripts of the vendor."""
    upstream.reset()
    names = {
        "plain": "any-model",
        "fails": "script.status=500",
        "refuses": "script.status=401.message=bad-key",
        "cut": "script.cut=2",
        "unclean": "script.clean_end=2",
        "event": "script.error_event=2",
        "page": "script.html200",
        "closes": "script.close_before_head",
    }
    free = {"input": "0", "output": "0"}
    doc = document(upstream.url)
    doc["model"] = [{"name": name, "price": free} for name in names]
    doc["channel"] = [
        {**doc["channel"][0], "name": family, "family": family, "models": names}
        for family in FAMILIES
    ]
    installation.apply(doc)
    return installation


def probe(installation, *args):
    """Exit code and printed document of a test."""
    ended = installation.run("channel", "test", *args, "--json")
    return ended.code, json.loads(ended.out)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", [(), ("--stream",)])
def test_a_good_channel(channels, upstream, family, options):
    code, said = probe(channels, family, "--model", "plain", *options)
    assert code == 0 and said["ok"] is True and said["error"] is None
    assert (said["channel"], said["model"], said["upstream_model"]) == (
        family,
        "plain",
        "any-model",
    )
    assert said["status"] == 200 and said["stream"] is bool(options)
    assert 0 <= said["first_byte_ms"] <= said["total_ms"]
    assert len([entry for entry in upstream.log() if "any-model" in json.dumps(entry)]) == 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("model", "options", "status", "error"),
    [
        ("fails", (), 500, "upstream_error"),
        ("fails", ("--stream",), 500, "upstream_error"),
        ("refuses", (), 401, "channel_misconfigured"),
        ("page", (), 200, "upstream_invalid_response"),
        ("page", ("--stream",), 200, "asked for a stream"),
        ("cut", ("--stream",), 200, "truncated"),
        ("unclean", ("--stream",), 200, "whole"),
        ("event", ("--stream",), 200, "upstream_"),
        ("closes", (), None, "reset_before_head"),
    ],
)
def test_a_bad_channel_ends_with_1_and_says_why(channels, family, model, options, status, error):
    code, said = probe(channels, family, "--model", model, *options)
    assert code == 1 and said["ok"] is False
    assert said["status"] == status
    assert error in said["error"], said
    assert UPSTREAM_KEY not in json.dumps(said)


def test_the_vendors_own_words_are_shown(channels):
    code, said = probe(channels, "chat_completions", "--model", "refuses")
    assert code == 1 and "bad-key" in said["error"]


def test_nobody_listens(channels):
    channels.ok("channel", "set", "messages", "base_url=http://127.0.0.1:1")
    code, said = probe(channels, "messages")
    assert code == 1 and said["status"] is None and said["error"].startswith("connect: ")
    ended = channels.run("channel", "test", "messages")
    assert ended.code == 1 and "connect: " in ended.out and ended.err == ""


def test_a_disabled_channel_can_be_tried(channels):
    channels.ok("channel", "disable", "messages")
    assert probe(channels, "messages", "--model", "plain")[0] == 0


def test_the_first_model_is_the_default(channels):
    assert probe(channels, "messages")[1]["model"] in channels.ok("channel", "show", "messages")


def test_what_cannot_be_tried_is_told_with_the_cure(channels):
    assert 'did you mean "messages"' in channels.refused("channel", "test", "mesages")
    said = channels.refused("channel", "test", "messages", "--model", "plane")
    assert 'did you mean "plain"' in said
    channels.ok("channel", "set", "messages", "keys=")
    assert "keys=env:NAME" in channels.refused("channel", "test", "messages")
    channels.ok("channel", "set", "chat_completions", "models=")
    assert "models.NAME" in channels.refused("channel", "test", "chat_completions")
    channels.ok("channel", "create", "g", "vendor=gemini", "family=generate_content",
                "base_url=http://127.0.0.1:1")  # fmt: skip
    assert "generate_content" in channels.refused("channel", "test", "g")


def test_keys_that_cannot_be_opened_are_told(channels):
    path = channels.folder / "secrets.toml"
    text = path.read_text()
    line = next(one for one in text.splitlines() if one.startswith("cipher_keys"))
    start = line.index('"') + 1
    path.write_text(text.replace(line, line[:start] + "AAAAAAAA" + line[start + 8 :]))
    assert "secrets.toml" in channels.refused("channel", "test", "messages")


def test_tests_leave_no_record_and_cost_nothing(channels):
    probe(channels, "messages", "--model", "plain")
    assert channels.json("usage", "tail") == []
    assert channels.json("wallet", "show", "--user", "alice")["balance"] == "10"


def test_the_parser_is_not_loaded_by_other_verbs(channels, monkeypatch):
    monkeypatch.delitem(sys.modules, "commands.channel_probe", raising=False)
    channels.ok("channel", "list")
    assert "commands.channel_probe" not in sys.modules

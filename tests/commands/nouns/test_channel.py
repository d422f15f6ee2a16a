"""`channel test`: real calls to the scripted vendor."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from adapters.json.jsonio import dumps
from adapters.registry import FAMILIES
from handlers.relay.routing.probe import PROBES, PROMPT
from tests.commands.conftest import UPSTREAM_KEY, document
from tests.support.upstream import RawUpstream, ScriptedUpstream


@pytest.fixture(scope="module")
def upstream():
    with ScriptedUpstream() as vendor:
        yield vendor


@pytest.fixture
def channels(installation, upstream):
    """Create a channel of each family."""
    upstream.reset()
    names = {"plain": "any-model", "other": "up-model"}
    free = {"input": "0", "output": "0"}
    doc = document(upstream.url)
    doc["model"] = [{"name": name, "price": free} for name in names]
    doc["channel"] = [
        {**doc["channel"][0], "name": family, "family": family, "models": names}
        for family in FAMILIES
    ]
    installation.apply(doc)
    return installation


@pytest.fixture
def script(monkeypatch):
    """Return script(words), which sets the vendor's behaviour for later probes."""

    def tell(words):
        for family, sent in PROBES.items():
            fields = dumps(sent.fields).decode().replace(PROMPT, f"[[demo {words}]]")
            monkeypatch.setitem(PROBES, family, replace(sent, fields=json.loads(fields)))

    return tell


def probe(installation, *args):
    """Test channels; return the exit code and the printed document."""
    ended = installation.run("channel", "test", *args, "--json")
    return ended.code, json.loads(ended.out)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", [(), ("--stream",)])
def test_a_good_channel(channels, upstream, family, options):
    code, answer = probe(channels, family, "--model", "plain", *options)
    assert code == 0 and answer["ok"] is True and answer["error"] is None
    tested = [answer[name] for name in ("channel", "model", "upstream_model", "status", "stream")]
    assert tested == [family, "plain", "any-model", 200, bool(options)]
    assert 0 <= answer["first_byte_ms"] <= answer["total_ms"]
    assert len([entry for entry in upstream.log() if "any-model" in json.dumps(entry)]) == 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("words", "options", "status", "error"),
    [
        ("status=500", (), 500, "upstream_error"),
        ("status=500", ("--stream",), 500, "upstream_error"),
        ("status=401", (), 401, "channel_misconfigured"),
        ("status=401 message=bad-key", (), 401, "bad-key"),
        ("html200", (), 200, "an HTML page"),
        ("html200", ("--stream",), 200, "an HTML page"),
        ("cut=2", ("--stream",), 200, "truncated"),
        ("clean_end=2", ("--stream",), 200, "whole"),
        ("error_event=2", ("--stream",), 200, "upstream_"),
        ("close_before_head", (), None, "reset_before_head"),
    ],
)
def test_a_bad_channel_ends_with_1_and_says_why(
    channels, script, family, words, options, status, error
):
    script(words)
    code, answer = probe(channels, family, "--model", "plain", *options)
    assert code == 1 and answer["ok"] is False
    assert answer["status"] == status
    assert error in answer["error"], answer
    assert UPSTREAM_KEY not in json.dumps(answer)


def test_nobody_listens(channels):
    channels.ok("channel", "set", "messages", "base_url=http://127.0.0.1:1")
    code, answer = probe(channels, "messages")
    assert code == 1 and answer["status"] is None and answer["error"].startswith("connect: ")
    ended = channels.run("channel", "test", "messages")
    assert ended.code == 1 and "connect: " in ended.out and ended.err == ""


def test_it_keeps_off_private_addresses_as_the_gateway_does(channels, upstream, monkeypatch):
    monkeypatch.setenv("SLUICE_UPSTREAM__ALLOW_PRIVATE", "false")
    code, answer = probe(channels, "messages")
    assert code == 1 and answer["error"].startswith("connect: ")
    assert upstream.log() == []


def test_a_disabled_channel_can_be_tried_and_leaves_no_record(channels):
    channels.ok("channel", "disable", "messages")
    code, answer = probe(channels, "messages")
    assert code == 0 and answer["model"] in channels.ok("channel", "show", "messages")
    assert channels.json("usage", "tail") == []
    assert channels.json("wallet", "show", "--user", "alice")["balance"] == "10"


def test_what_cannot_be_tried_names_the_remedy(channels):
    assert 'did you mean "messages"' in channels.refused("channel", "test", "mesages")
    channels.ok("channel", "set", "chat_completions", "models=")
    assert "models.NAME" in channels.refused("channel", "test", "chat_completions")


def sent_to(channels, *fields):
    """Return (request line, headers, body) of the one request of a test of such a channel."""

    def answer():
        peer = upstream.accept()
        peer.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        peer.close()
        return peer.request.decode()

    with RawUpstream() as upstream, ThreadPoolExecutor(1) as thread:
        address = f"base_url={upstream.url}"
        channels.ok("channel", "create", "its", address, "models.plain=up-model", *fields)
        request = thread.submit(answer)
        code, printed = probe(channels, "its")
        head, _, body = request.result().partition("\r\n\r\n")
    assert (code, printed["status"]) == (1, 404)
    first, *headers = head.split("\r\n")
    return first, headers, json.loads(body)


@pytest.mark.parametrize(
    ("vendor", "family", "path", "credential"),
    [
        ("openrouter", "messages", "/api/v1/messages", "authorization: Bearer sk-its"),
        ("anthropic", "messages", "/v1/messages", "x-api-key: sk-its"),
        (
            *("gemini", "generate_content", "/v1beta/models/up-model:generateContent"),
            "x-goog-api-key: sk-its",
        ),
    ],
)
def test_the_call_goes_where_the_vendor_takes_it(channels, vendor, family, path, credential):
    fields = f"vendor={vendor}", f"family={family}", "keys=sk-its"
    line, headers, body = sent_to(channels, *fields)
    assert line == f"POST {path} HTTP/1.1" and credential in headers
    assert body.get("model", "up-model") == "up-model"


def test_a_channel_without_a_key_is_tried_without_a_credential(channels):
    line, headers, _ = sent_to(channels, "vendor=ollama", "family=messages")
    assert line == "POST /v1/messages HTTP/1.1"
    names = {header.partition(":")[0].lower() for header in headers}
    assert not names & {"authorization", "x-api-key", "api-key", "x-goog-api-key"}


def test_keys_that_cannot_be_opened_are_told(channels):
    path = channels.folder / "secrets.toml"
    text = path.read_text()
    line = next(one for one in text.splitlines() if one.startswith("cipher_keys"))
    start = line.index('"') + 1
    path.write_text(text.replace(line, line[:start] + "AAAAAAAA" + line[start + 8 :]))
    assert "secrets.toml" in channels.refused("channel", "test", "messages")


def test_the_parser_is_not_loaded_by_other_verbs(channels, monkeypatch):
    monkeypatch.delitem(sys.modules, "commands.nouns.channel_probe", raising=False)
    channels.ok("channel", "list")
    assert "commands.nouns.channel_probe" not in sys.modules


def test_the_list_shows_the_state_of_each_channel(filled):
    [item] = filled.json("channel", "list")
    shown = [item[name] for name in ("name", "state", "reason")]
    assert shown == ["main", "available", "no_recent_traffic"]
    [model] = item["status"]
    assert model["model"] == "gpt-4.1" and set(model["windows"]) == {"5m", "24h", "30d"}
    head, line = filled.ok("channel", "list").splitlines()
    assert head.split()[:4] == ["name", "enabled", "draining", "state"]
    assert line.split()[:4] == ["main", "yes", "no", "available"]
    assert "windows" not in filled.ok("channel", "show", "main")

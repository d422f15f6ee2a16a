"""`client-config`: which address which client is given."""

import json
import shlex

import pytest

from commands import client_config, output
from conf.settings import ServerSettings

KEY = "sk-test-0123456789abcdef"


@pytest.fixture
def run(tmp_path, capsys):
    def configure(*args, text=""):
        path = tmp_path / "gateway.toml"
        path.write_text(text)
        given = [*args, "--key", KEY, "--config", str(path)]
        code = output.run(client_config.command, given, "sluice client-config")
        return code, *capsys.readouterr()

    return configure


@pytest.mark.parametrize(
    ("client", "lines"),
    [
        ("openai", ["OPENAI_BASE_URL=http://127.0.0.1:8000/v1", f"OPENAI_API_KEY={KEY}"]),
        ("anthropic", ["ANTHROPIC_BASE_URL=http://127.0.0.1:8000", f"ANTHROPIC_API_KEY={KEY}"]),
        (
            "claude-code",
            ["ANTHROPIC_BASE_URL=http://127.0.0.1:8000", f"ANTHROPIC_AUTH_TOKEN={KEY}"],
        ),
    ],
)
def test_variables(run, client, lines):
    code, out, _ = run(client)
    assert code == 0
    assert out.splitlines() == [f"export {line}" for line in lines]


def test_curl_commands_parse(run):
    code, out, _ = run("curl")
    assert code == 0
    chat, messages = (shlex.split(text) for text in out.split("\n\n"))
    assert chat[:3] == ["curl", "-N", "http://127.0.0.1:8000/v1/chat/completions"]
    assert f"Authorization: Bearer {KEY}" in chat
    assert messages[2] == "http://127.0.0.1:8000/v1/messages"
    assert f"x-api-key: {KEY}" in messages and "anthropic-version: 2023-06-01" in messages
    for words in (chat, messages):
        assert json.loads(words[-1])["stream"] is True


@pytest.mark.parametrize("client", client_config.LATER)
def test_clients_that_are_not_served_yet(run, client):
    code, out, err = run(client)
    assert (code, out) == (1, "")
    assert "not served yet" in err


def test_unknown_client_is_wrong_usage(run):
    assert run("nobody")[0] == 2


def test_public_url_and_json(run):
    text = '[server]\npublic_url = "https://gw.example/"\n'
    code, out, _ = run("openai", "--json", text=text)
    assert code == 0
    document = json.loads(out)
    assert document["base_url"] == "https://gw.example"
    assert "https://gw.example/v1" in document["settings"]


@pytest.mark.parametrize(
    ("host", "base"),
    [
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("10.1.2.3", "http://10.1.2.3:8000"),
    ],
)
def test_base_url(host, base):
    assert client_config.base_url(ServerSettings(host=host)) == base

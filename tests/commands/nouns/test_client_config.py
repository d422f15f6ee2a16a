"""`client-config`: the address for each client, and that the printed settings work.

Python snippets run with the official SDKs, commands in a shell. For the coding clients, the test
reads their files and variables as they do.
"""

import json
import os
import re
import subprocess
import tomllib
from urllib.parse import parse_qs, urlsplit

import anthropic
import openai
import pytest
from google import genai

from adapters.registry import FAMILY_NAMES
from commands import output
from commands.nouns import client_config
from operations import client_settings
from tests.support.client import events
from tests.support.dialects import SECRET, is_error, is_terminal, text_of
from tests.support.documents import channel, document
from tests.support.gateway import Gateway
from tests.support.programs import program
from tests.support.upstream import ScriptedUpstream

KEY = "sk-test-0123456789abcdef"
MODEL = "demo/small"  # like some users' model names, with a slash
SAYING = "[[demo text=Hello.]]"
FOREIGN = re.compile("OPENAI|ANTHROPIC|GEMINI|GOOGLE|SLUICE")
PATIENCE_S = 20


@pytest.fixture
def run(tmp_path, capsys):
    def configure(*args, text=""):
        path = tmp_path / "gateway.toml"
        path.write_text(text)
        given = [*args, "--key", KEY, "--config", str(path)]
        code = output.run(client_config.command, given, "sluice client-config")
        return code, *capsys.readouterr()

    return configure


BASE = "http://127.0.0.1:8000"
GOOGLE = [f"GOOGLE_GEMINI_BASE_URL={BASE}", f"GEMINI_API_KEY={KEY}"]
VARIABLES = {
    "openai": [f"OPENAI_BASE_URL={BASE}/v1", f"OPENAI_API_KEY={KEY}"],
    "anthropic": [f"ANTHROPIC_BASE_URL={BASE}", f"ANTHROPIC_API_KEY={KEY}"],
    "google-genai": GOOGLE,
    "claude-code": [f"ANTHROPIC_BASE_URL={BASE}", f"ANTHROPIC_AUTH_TOKEN={KEY}"],
    "codex": [f"SLUICE_API_KEY={KEY}"],
    "gemini-cli": GOOGLE,
    **{client: [] for client in ("curl", "ide-plugin", "cc-switch")},
}


def test_variables(run):
    assert set(client_settings.CLIENT_SETTINGS) == set(VARIABLES)
    for client, lines in VARIABLES.items():
        code, out, _ = run(client)
        exports = [line for line in out.splitlines() if line.startswith("export ")]
        assert (code, exports) == (0, [f"export {line}" for line in lines])
        assert MODEL not in out  # a model is named only if it is given
    assert run("nobody")[0] == 2
    file = tomllib.loads(parts(run("codex")[1])["~/.codex/config.toml"])
    assert set(file) == {"model_provider", "model_providers"}
    fields = [f"Base URL: {BASE}/v1", f"API key: {KEY}", "Model: demo/small"]
    assert run("ide-plugin", "--model", MODEL)[1].splitlines()[1:] == fields
    links = [line for line in run("cc-switch")[1].splitlines() if line.startswith("ccswitch:")]
    queries = [parse_qs(urlsplit(link).query) for link in links]
    assert [(query["app"], query["endpoint"], query["apiKey"]) for query in queries] == [
        (["claude"], [BASE], [KEY]),
        (["codex"], [f"{BASE}/v1"], [KEY]),
        (["gemini"], [BASE], [KEY]),
    ]
    text = client_settings.CLIENT_SETTINGS["cc-switch"](BASE, KEY, lambda family: family).text
    models = [line.rpartition("&model=")[2] for line in text.splitlines() if "&model=" in line]
    assert models == ["messages", "responses", "generate_content"], "each app has a native model"


@pytest.mark.parametrize(
    ("model", "url"), [(MODEL, f"{BASE}/v1/models"), ("gpt-6-sol", None), ("", None)]
)
def test_codex_reads_the_list_of_the_gateway_unless_it_knows_the_model(run, model, url):
    arguments = ["codex", "--model", model] if model else ["codex"]
    file = tomllib.loads(parts(run(*arguments)[1])["~/.codex/config.toml"])
    assert file["model_providers"]["sluice"].get("model_catalog_url") == url


def test_public_url_and_json(run):
    code, out, _ = run("openai", "--json", text='[server]\npublic_url = "https://gw.example/"\n')
    document = json.loads(out)
    assert (code, document["base_url"]) == (0, "https://gw.example")
    assert "https://gw.example/v1" in document["settings"]


# The printed settings, tried at a gateway.


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with ScriptedUpstream() as vendor:
        node = Gateway(tmp_path_factory.mktemp("configured") / "node")
        channels = [channel(name, name, vendor.url, {MODEL: "up-model"}) for name in FAMILY_NAMES]
        node.apply(document([MODEL], channels))
        try:
            node.start()
            yield node
        finally:
            node.close()


@pytest.fixture
def printed(gateway):
    """Return printed(client, *more): the command's output for the gateway's own configuration."""

    def say(client, *more):
        return gateway.run("client-config", client, "--key", SECRET, *more)

    return say


def parts(text):
    """Return the parts after the variables, by their titles."""
    pieces = re.split(r"^# (.*)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def shell_of(text):
    """Return a shell's environment after its export lines have been pasted."""
    lines = [line for line in text.splitlines() if line.startswith("export ")]
    clean = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    script = "\n".join([*lines, "env -0"])
    done = subprocess.run(
        ["sh", "-c", script], env=clean, capture_output=True, check=True, timeout=PATIENCE_S
    )
    pairs = (entry.partition("=") for entry in done.stdout.decode().split("\0") if entry)
    return {name: value for name, _, value in pairs}


@pytest.fixture
def paste(monkeypatch):
    """Return paste(text), which gives this process the environment that the shell would have."""

    def into_the_shell(text):
        for name in list(os.environ):
            if FOREIGN.match(name):
                monkeypatch.delenv(name)
        for name, value in shell_of(text).items():
            if FOREIGN.match(name):
                monkeypatch.setenv(name, value)

    return into_the_shell


def client_of(code):
    names = {}
    exec(code, names)
    return names["client"]


def test_openai(printed, paste):
    text = printed("openai")
    paste(text)
    for client in (openai.OpenAI(), client_of(parts(text)["Python"])):
        with client:
            answer = client.responses.create(model=MODEL, input=SAYING)
            assert answer.output_text == "Hello."
            messages = [{"role": "user", "content": SAYING}]
            stream = client.chat.completions.create(model=MODEL, messages=messages, stream=True)
            deltas = [chunk.choices[0].delta.content or "" for chunk in stream]
            assert "".join(deltas) == "Hello."


def test_anthropic(printed, paste):
    text = printed("anthropic")
    paste(text)
    messages = [{"role": "user", "content": SAYING}]
    for client in (anthropic.Anthropic(), client_of(parts(text)["Python"])):
        with (
            client,
            client.messages.stream(model=MODEL, max_tokens=50, messages=messages) as stream,
        ):
            assert stream.get_final_text() == "Hello."


def test_google_genai(gateway, printed, paste):
    text = printed("google-genai")
    paste(text)
    newer, older = parts(text).values()
    asked = []
    for client in (genai.Client(), client_of(newer), client_of(older)):
        options = client._api_client._http_options
        asked.append((options.base_url.rstrip("/"), options.api_version))
        stream = client.models.generate_content_stream(model=MODEL, contents=SAYING)
        assert "".join(chunk.text or "" for chunk in stream) == "Hello."
        client.close()
    base = f"http://127.0.0.1:{gateway.port}"
    assert asked == [(base, "v1"), (base, "v1"), (base, "v1beta")]


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_curl(printed, tmp_path, family):
    program("curl")
    line = parts(printed("curl", "--model", MODEL))[client_settings.CURL_TITLES[family]]
    line = line.replace(client_settings.PROMPT, SAYING)
    body = subprocess.check_output(["sh", "-c", line], cwd=tmp_path, timeout=PATIENCE_S)
    found = events(body)
    assert is_terminal(found[-1]) and not any(map(is_error, found)), found
    assert text_of(family, body) == "Hello."


def settings_of_coding_client(client, printed):
    """Return the base URL, key and model that a coding client reads from the output."""
    text = printed(client, "--model", MODEL)
    shell, files = shell_of(text), parts(text)
    if client == "claude-code":
        assert {shell[name] for name in client_settings.CLAUDE_MODELS} == {MODEL}
        return shell["ANTHROPIC_BASE_URL"], shell["ANTHROPIC_AUTH_TOKEN"], shell["ANTHROPIC_MODEL"]
    if client == "codex":
        file = tomllib.loads(files["~/.codex/config.toml"])
        provider = file["model_providers"][file["model_provider"]]
        assert provider["wire_api"] == "responses" and provider["name"]
        base_url = provider["base_url"].removesuffix("/v1")
        assert base_url != provider["base_url"]
        return base_url, shell[provider["env_key"]], file["model"]
    file = json.loads(files["~/.gemini/settings.json"])
    assert file == {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    return shell["GOOGLE_GEMINI_BASE_URL"], shell["GEMINI_API_KEY"], shell["GEMINI_MODEL"]


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini-cli"])
def test_coding_clients(gateway, printed, client):
    """The settings they read; tests/gateway/test_coding_clients.py sends their requests."""
    read = settings_of_coding_client(client, printed)
    assert read == (f"http://127.0.0.1:{gateway.port}", SECRET, MODEL)

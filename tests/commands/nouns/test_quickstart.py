"""`quickstart` up to the exec of `serve`: what it creates, prints and leaves unchanged."""

import json
import os
import shlex
import socket
import stat
import sys

import pytest

from adapters.registry import FAMILIES, VENDORS
from commands import output
from commands.nouns import quickstart
from conf import secrets
from store.admin.export import export
from store.catalog import keys
from store.db.database import discard, open_database
from store.values import key_secrets

VENDOR_KEYS = [start.variable for start in quickstart.VENDOR_STARTS]


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Return run(*args), which returns (exit code, stdout, argv of the `serve` that would
    follow)."""
    for name in VENDOR_KEYS:
        monkeypatch.delenv(name, raising=False)
    became = []
    monkeypatch.setattr(os, "execv", lambda path, argv: became.append((path, argv)))
    monkeypatch.chdir(tmp_path)

    def start(*args):
        became.clear()
        code = output.run(quickstart.command, args, "sluice quickstart")
        out, err = capsys.readouterr()
        assert code == 0, err
        start.err = err
        [(path, argv)] = became
        assert path == sys.executable and out == ""
        *argv, option, descriptor = argv
        assert option == "--welcome-fd" and os.get_inheritable(int(descriptor))
        with open(int(descriptor)) as welcome:  # what `serve` prints once it has the ports
            return welcome.read(), argv

    return start


def stored(tmp_path):
    """Return the contents of a run's store, its channels by their names."""
    db = open_database(f"sqlite:///{tmp_path}/run/sluice.db")
    try:
        document = export(db)
        return document | {"channel": {row["name"]: row for row in document["channel"]}}
    finally:
        discard(db)


def curls(out: str) -> list[list[str]]:
    """Return the words of every curl command in a text."""
    parts = [part for part in out.split("\n\n") if "curl " in part]
    return [shlex.split(part[part.index("curl ") :]) for part in parts]


def test_without_accounts_the_demo_answers_for_every_family(run, tmp_path):
    out, argv = run("--port", "26987")
    channels = stored(tmp_path)["channel"].values()
    assert {channel["family"] for channel in channels} == {*FAMILIES}
    assert {channel["vendor"] for channel in channels} == {"demo"}
    port = argv[argv.index("--demo-port") + 1]
    assert {channel["base_url"] for channel in channels} == {f"http://127.0.0.1:{port}"}
    assert argv[1:4] == [quickstart.APP, "serve", "--config"]
    assert argv[5:7] == ["--set", "server.port=26987"]
    commands = [" ".join(words) for words in curls(out)]
    models = list(quickstart.DEMO_MODELS.values())
    assert len(commands) == len(models) == len(FAMILIES)
    assert all(model in words for model, words in zip(models, commands, strict=True))


def test_the_key_works_and_is_kept(run, tmp_path):
    out, _ = run()
    path = tmp_path / "run" / "quickstart.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = path.read_text().strip()
    assert str(path.relative_to(tmp_path)) in out
    owned = secrets.load(tmp_path / "run" / "secrets.toml")
    db = open_database(f"sqlite:///{tmp_path}/run/sluice.db")
    entry = keys.find_key(db, key_secrets.digests(secret, owned.peppers))
    discard(db)
    assert entry is not None and (entry.user, entry.group) == ("admin", "default")


def test_another_port_for_a_run_is_told_not_to_be_kept(run, tmp_path):
    for port, told in (("26987", False), ("26987", False), ("26988", True)):
        run("--port", port)
        assert ("server.port" in run.err and "gateway.toml has another" in run.err) == told
        assert told or run.err == ""


def test_a_second_time_changes_nothing_and_a_lost_key_file_gives_a_new_key(
    run, tmp_path, monkeypatch
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(quickstart, "DEMO_PORTS", range(port, port + 50))
        first, argv = run()
    assert port < int(argv[argv.index("--demo-port") + 1]) < port + 50
    before = stored(tmp_path)
    second, again = run()
    assert (stored(tmp_path), again, curls(second)) == (before, argv, curls(first))
    path = tmp_path / "run" / "quickstart.key"
    old = path.read_text()
    path.unlink()
    out, _ = run()
    assert path.read_text() != old and "created now" in out


def test_vendor_channels_for_the_keys_that_are_set(run, tmp_path, monkeypatch):
    run("--dir", "run")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-vendor-0123456789")
    out, argv = run()
    channels = stored(tmp_path)["channel"]
    assert {"openai", "openai-responses", "demo-messages", "demo-generate-content"} <= {*channels}
    for name, family in (("openai", "chat_completions"), ("openai-responses", "responses")):
        channel = channels[name]
        assert (channel["vendor"], channel["family"]) == ("openai", family)
        assert channel["base_url"] == "https://api.openai.com"
        assert set(channel["models"]) == {"gpt-6.1-sol", "gpt-6.1-terra"}
    assert "--demo-port" in argv and "sk-vendor" not in out
    for words in curls(out)[:2]:
        assert json.loads(words[-1])["model"].startswith("gpt-")


def test_no_demo_beside_vendors_for_all_families(run, tmp_path, monkeypatch):
    for name in VENDOR_KEYS:
        monkeypatch.setenv(name, "sk-vendor-0123456789")
    _, argv = run()
    assert "--demo-port" not in argv
    channels = stored(tmp_path)["channel"].values()
    assert {(channel["vendor"], channel["family"]) for channel in channels} == {
        ("openai", "chat_completions"),
        ("openai", "responses"),
        ("anthropic", "messages"),
        ("gemini", "generate_content"),
    }
    assert all(row["family"] in VENDORS[row["vendor"]].families for row in channels)


def test_a_bad_setting_is_refused_before_anything_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = output.run(quickstart.command, ["--set", "server.prot=1"], "sluice quickstart")
    assert code == 3
    assert "did you mean server.port" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()

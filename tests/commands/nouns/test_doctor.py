"""`doctor` without a running gateway: store, machine, channels, its output."""

import json

import pytest

from store.db import nodes
from store.db.database import execute, transaction
from store.db.migrations import FORERUNNERS
from tests.commands.conftest import document
from tests.support import terminal
from tests.support.upstream import RawUpstream, ScriptedUpstream

HTML = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<!DOCTYPE html><p>hi"
)


def looked(installation, *args):
    """Run `doctor`; return (exit code, the findings by their check)."""
    ended = installation.run("doctor", "--json", *args)
    found = json.loads(ended.out)
    assert found["ok"] == (ended.code == 0)
    by_check = {}
    for one in found["findings"]:
        assert one["state"] in ("ok", "warning", "failed", "skipped")
        assert one["cure"] or one["state"] in ("ok", "skipped"), one
        by_check.setdefault(one["check"], []).append(one)
    return ended.code, by_check


def states(found, check):
    return [one["state"] for one in found[check]]


def test_all_is_well_and_nothing_is_spent(filled):
    code, found = looked(filled)
    assert code == 0
    assert states(found, "store") == ["ok"] and states(found, "clock") == ["ok"]
    assert states(found, "channel") == states(found, "gateway") == ["skipped"]
    assert "1 channels not called" in found["channel"][0]["message"]


def test_channels_that_answer_or_do_not(installation):
    def called(base_url, *args, vendor="demo"):
        made = document(base_url)
        made["channel"][0]["vendor"] = vendor
        installation.apply(made)
        code, found = looked(installation, *args)
        return (code, *states(found, "channel")), found["channel"][0]

    outcome, finding = called("http://127.0.0.1:1", "--yes")
    assert outcome == (1, "failed") and "channel disable main" in finding["cure"]
    with ScriptedUpstream() as vendor:
        assert called(vendor.url, "--yes")[0] == (0, "ok")
    with RawUpstream(HTML) as site:
        outcome, finding = called(f"http://127.0.0.1:{site.port}", "--yes")
    assert outcome == (1, "failed")
    assert "HTML" in finding["message"] and "base_url=" in finding["cure"]
    # a base URL that includes what the vendor appends
    outcome, finding = called("https://api.groq.example/openai", vendor="groq")
    assert outcome == (1, "failed", "skipped")
    assert "base_url=https://api.groq.example" in finding["cure"]


@pytest.mark.parametrize(
    ("step", "remedy"), [("0023_processes", "migrate up"), ("0022_guarded_proxy", "operations.md")]
)
def test_a_schema_that_is_behind_or_too_old(filled, step, remedy):
    steps = FORERUNNERS[: FORERUNNERS.index(step) + 1]
    insert = 'INSERT INTO "schema_migrations" ("name", "applied_ms") VALUES (?, 1)'
    with filled.store() as db:
        execute(db, 'DELETE FROM "schema_migrations"')
        transaction(db, lambda: [execute(db, insert, (name,)) for name in steps])
    code, found = looked(filled)
    assert (code, states(found, "store")) == (1, ["failed"])
    assert remedy in found["store"][0]["cure"]


def test_no_store(filled):
    (filled.folder / "sluice.db").unlink()
    code, found = looked(filled)
    assert (code, states(found, "store")) == (1, ["failed"])
    assert "init" in found["store"][0]["cure"]
    ended = filled.run("doctor")
    assert ended.code == 1 and "FAILED" in ended.out and "remedy: create it" in ended.out
    # only a path longer than the column may exceed it
    assert all(len(line) <= 80 or " " not in line[21:] for line in ended.out.splitlines())
    assert "\x1b" not in ended.out


def test_secrets(filled):
    path = filled.folder / "secrets.toml"
    text = path.read_text()
    for mode, code, state in ((0o640, 0, "warning"), (0o644, 1, "failed")):
        path.chmod(mode)
        got, found = looked(filled)
        assert (got, states(found, "secrets")) == (code, [state])
    path.chmod(0o600)
    # another cipher key
    line = next(one for one in text.splitlines() if one.startswith("cipher_keys"))
    peppers = next(one for one in text.splitlines() if one.startswith("peppers"))
    path.write_text(text.replace(line, peppers.replace("peppers", "cipher_keys")))
    code, found = looked(filled)
    assert code == 1 and "failed" in states(found, "channel")
    path.write_text(text)
    # an unfinished rotation
    with filled.store() as db:
        nodes.note_seen(db, "far-away")
    filled.refused("secrets", "rotate", "cookie")
    code, found = looked(filled)
    assert (code, states(found, "secrets")) == (0, ["ok", "warning"])


def test_urls_with_a_path_too_much_or_nobody_behind_them(filled, monkeypatch):
    code, found = looked(filled, "--url", "http://127.0.0.1:1", "--key", "sk-x")
    assert (code, states(found, "url")) == (1, ["ok", "failed"])
    assert "stream" not in found
    assert "--url" in filled.misused("doctor", "--url", "gw.example")  # without a scheme
    monkeypatch.setenv("SLUICE_SERVER__PUBLIC_URL", "https://gw.example/v1beta")
    code, found = looked(filled)
    assert (code, states(found, "url")) == (1, ["failed"])
    assert 'public_url = "https://gw.example"' in found["url"][0]["cure"]


def test_a_person_is_asked_before_anything_is_spent(installation):
    with ScriptedUpstream() as vendor:
        installation.apply(document(vendor.url))
        config = ("--config", str(installation.config))
        code, shown = terminal.run(["doctor", *config], typed="n\n")
        assert code == 0 and "each of 1 channels now?" in shown and "not called (declined)" in shown
        assert "\x1b[32mok" in shown
        code, shown = terminal.run(["doctor", *config], typed="y\n", env={"NO_COLOR": "1"})
        assert code == 0 and "main: gpt-4.1 answered" in shown
        assert "\x1b" not in shown

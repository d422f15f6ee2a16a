"""`status`: the settings in force; its output when no gateway runs, or the store is away."""

import http.server
import json
import re
import threading

import pytest

from store.db.tables.usage import UsageByRate
from store.values.ids import day_at, new_ulid, now_ms
from tests.commands.conftest import record

NODE = {
    **{"node": "web-1", "pid": 1, "ready": True, "reason": "", "draining": False},
    **{"streams": 3, "calls": 4},
    "workers": [
        {
            **{"pid": 2, "slot": 0, "ready": True, "streams": 3, "calls": 4, "connections": 5},
            **{"store": "up", "open_breakers": 0, "journal_backlog_bytes": 7, "leaving": False},
        }
    ],
}


@pytest.fixture
def ops(monkeypatch):
    """Return a replacement of a running gateway's ops port; `answer` is the body of its status."""

    class Handler(http.server.BaseHTTPRequestHandler):
        answer = json.dumps(NODE).encode()
        status = 200
        asked = None

        def do_GET(self):
            assert self.path == "/status"
            Handler.asked = self.headers
            self.send_response(self.status)
            self.send_header("Content-Length", str(len(self.answer)))
            self.end_headers()
            self.wfile.write(self.answer)

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("SLUICE_OPS__PORT", str(server.server_port))
    yield Handler
    server.shutdown()
    server.server_close()


def test_settings_in_force(installation, monkeypatch):
    monkeypatch.setenv("SLUICE_ROUTING__MAX_ATTEMPTS", "7")
    rows = {row["name"]: row for row in installation.json("status", "--settings")}
    assert rows["routing.max_attempts"] == {"name": "routing.max_attempts", "value": 7}
    answer = {row["name"]: row for row in installation.json("status", "--settings", "--origin")}
    assert answer["routing.max_attempts"]["origin"] == "environment SLUICE_ROUTING__MAX_ATTEMPTS"
    head, *lines = installation.ok("status", "--settings", "--origin").splitlines()
    assert head.split() == ["name", "value", "origin"] and len(lines) == len(answer)


def test_the_clock_and_another_store_are_shown(installation, ops):
    own = str(installation.folder / "sluice.db")
    for fields, line in (
        ({"clock_lead_s": 0, "store": own}, "agrees with the database's"),
        ({"clock_lead_s": 312.04, "store": own}, "312.0 s ahead of the database's"),
        ({"clock_lead_s": -61.5, "store": "db:3306/sluice"}, "61.5 s behind the database's"),
    ):
        ops.answer = json.dumps(NODE | fields).encode()
        ended = installation.run("status")
        assert ended.code == 0 and line in ended.out
        assert f"store                  {fields['store']}" in ended.out
        warning = f"uses the store {fields['store']}, but the configuration names {own}"
        assert (warning in ended.err) == (fields["store"] != own)


def test_a_stranger_at_the_ops_port_is_told(installation, ops):
    ended = installation.run("status", "--json")
    assert ended.code == 0 and json.loads(ended.out)["node"] == "web-1"
    assert "is web-1" in ended.err and "not started yet" in ended.err
    folder = installation.folder / "journal"
    folder.mkdir()
    (folder / "node").write_text("web-2\n")
    text = installation.run("status").err
    assert "is web-1" in text and "is web-2" in text and str(installation.config) in text
    (folder / "node").write_text("web-1\n")
    assert installation.run("status").err == ""


def test_an_unreachable_gateway_is_one_line_that_names_the_configuration(installation, monkeypatch):
    monkeypatch.setenv("SLUICE_OPS__PORT", "1")
    message = installation.refused("status")
    assert message.count("\n") == 1
    assert "127.0.0.1:1 (ops.port): Connection refused; " in message
    assert str(installation.config) in message and "SLUICE_CONFIG" in message
    monkeypatch.setenv("SLUICE_OPS__ENABLED", "false")
    assert "ops.enabled" in installation.refused("status")
    assert "--settings" in installation.misused("status", "--origin")


def test_no_secret_is_shown_and_the_token_of_the_ops_port_is_sent(filled, ops, monkeypatch):
    monkeypatch.setenv("SLUICE_OPS__TOKEN", "s3cret-token")
    assert filled.json("status")["node"] == "web-1"
    assert ops.asked["Authorization"] == "Bearer s3cret-token"
    monkeypatch.setenv("SLUICE_STORE__URL", "mysql://sluice:s3cret@db.example:3306/sluice")
    for options in (("--settings",), ("--settings", "--json"), ("--settings", "--origin")):
        out = filled.ok("status", *options)
        assert "s3cret" not in out and "db.example" in out
    ops.status = 401
    assert "another ops.token" in filled.refused("status")


def test_something_else_listens_there(installation, ops):
    for answer in (b"<html>", b"[]", b'{"workers": 3}', b"{}"):
        ops.answer = answer
        text = installation.refused("status")
        assert len(text.splitlines()) == 1 and "something else listens there" in text


def test_node_workers_channels_and_models(filled, ops):
    at_ms = now_ms()
    filled.write_records(*(record(n, started_ms=at_ms, id=new_ulid()) for n in range(2)))
    answer = filled.json("status")
    assert {name: answer[name] for name in NODE} == NODE
    assert answer["journal_backlog_bytes"] == 7 and answer["probe"] == {"interval_s": 0}
    [channel], [group] = answer["channels"], answer["groups"]
    assert (channel["name"], group["name"]) == ("main", "default")
    for one in (channel, group):
        [model] = one["models"]
        assert (model["model"], model["state"]) == ("gpt-4.1", "available")
    lines = filled.ok("status").splitlines()
    column = len("journal_backlog_bytes  ")  # the node's values are in one column
    shown = {line[:column].strip(): line[column:] for line in lines[: lines.index("workers:")]}
    figures = [shown[name] for name in ("workers", "open streams", "open calls", "probes")]
    assert figures[:3] == ["1", "3", "4"] and figures[3].startswith("off")
    head, row = (line.split() for line in lines[lines.index("workers:") + 1 :][:2])
    worker = dict(zip(head, row, strict=True))
    figures = [worker[name] for name in ("pid", "slot", "streams", "calls", "open_breakers")]
    assert figures == ["2", "0", "3", "4", "0"]
    filled.ok("channel", "disable", "main")
    text = filled.ok("status")
    assert "channel × model: 1 disabled" in text and "group × model: 1 disabled" in text
    assert re.search(r"^main .* disabled ", text, re.M) and "no_channel" in text


def test_uses_without_a_price(filled, ops):
    assert filled.json("status")["unpriced"] == []
    with filled.store() as db:
        row = {"day": day_at(now_ms()), "model": "gpt-4.1", "rate": "", "meter": "maps", "uses": 3}
        UsageByRate.insert(row).execute(db)
    expected = [{"model": "gpt-4.1", "meter": "maps", "count": 3}]
    assert filled.json("status")["unpriced"] == expected
    text = filled.ok("status")
    assert text.endswith("\nused without a price in 7 days: maps of gpt-4.1 × 3\n")
    filled.ok("model", "set", "gpt-4.1", "price.maps=0.01")
    assert filled.json("status")["unpriced"] == []


def test_damaged_lines_of_the_journal_are_told(filled, ops):
    for parked in (3, 0):
        ops.answer = json.dumps({**NODE, "parked": parked}).encode()
        assert filled.json("status")["parked"] == parked
        assert ("3 damaged lines" in filled.run("status").err) == bool(parked)


def test_the_store_is_away_and_the_gateway_runs(filled, ops, tmp_path):
    (tmp_path / "sluice.db").rename(tmp_path / "elsewhere.db")
    ended = filled.run("status", "--json")
    answer = json.loads(ended.out)
    assert ended.code == 0 and "the store" in ended.err
    assert (
        answer["node"] == "web-1"
        and answer["channels"] is answer["groups"] is answer["unpriced"] is None
    )
    assert "web-1" in filled.ok("status")

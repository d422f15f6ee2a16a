"""`status`: the settings in force; what it says when no gateway runs, or the store is away."""

import http.server
import json
import threading

import pytest

from store.values.ids import new_ulid, now_ms
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
    """A stand-in for the ops port of a running gateway; `answer` is the body of its status."""

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
    assert rows["probe.interval_s"]["value"] == 0
    answer = {row["name"]: row for row in installation.json("status", "--settings", "--origin")}
    assert answer["routing.max_attempts"]["origin"] == "environment SLUICE_ROUTING__MAX_ATTEMPTS"
    assert answer["server.port"]["origin"] == "default"
    assert str(installation.config) in answer["store.url"]["origin"]
    head, *lines = installation.ok("status", "--settings", "--origin").splitlines()
    assert head.split() == ["name", "value", "origin"] and len(lines) == len(answer)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"clock_lead_s": 0}, "agrees with the database's"),
        ({"clock_lead_s": 312.04}, "312.0 s ahead of the database's"),
        ({"clock_lead_s": -61.5}, "61.5 s behind the database's"),
    ],
)
def test_the_clock_is_a_line(installation, ops, fields, line):
    ops.answer = json.dumps(NODE | fields).encode()
    assert line in installation.ok("status")


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
    assert installation.run("status", "--json").code == 1


def test_no_secret_is_shown_and_the_token_of_the_ops_port_is_sent(filled, ops, monkeypatch):
    monkeypatch.setenv("SLUICE_OPS__TOKEN", "s3cret-token")
    assert filled.json("status")["node"] == "web-1"
    assert ops.asked["Authorization"] == "Bearer s3cret-token"
    monkeypatch.setenv("SLUICE_STORE__URL", "mysql://sluice:s3cret@db.example:3306/sluice")
    for options in (("--settings",), ("--settings", "--json"), ("--settings", "--origin")):
        out = filled.ok("status", *options)
        assert "s3cret" not in out and "db.example" in out
    rows = {row["name"]: row["value"] for row in filled.json("status", "--settings")}
    assert (rows["ops.token"], rows["ops.hosts"]) == ("***", [])
    ops.status = 401
    assert "another ops.token" in filled.refused("status")


def test_what_makes_no_sense_is_refused(installation, monkeypatch):
    assert "--settings" in installation.misused("status", "--origin")
    monkeypatch.setenv("SLUICE_OPS__ENABLED", "false")
    assert "ops.enabled" in installation.refused("status")


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"workers": 3}', b"{}"])
def test_something_else_listens_there(installation, ops, answer):
    ops.answer = answer
    text = installation.refused("status")
    assert len(text.splitlines()) == 1 and "no gateway answers" in text
    assert "something else listens there" in text


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
    text = filled.ok("status")
    for part in ("web-1", "probes", "off", "channel × model: 1 available", "open_breakers"):
        assert part in text


def test_the_text_names_workers_open_streams_and_calls(installation, ops):
    more = {**NODE["workers"][0], "pid": 8, "slot": 1, "streams": 1, "calls": 2}
    two = {**NODE, "workers": [*NODE["workers"], more], "streams": 4, "calls": 6}
    ops.answer = json.dumps(two).encode()
    text = installation.ok("status")
    values = [line for line in text.partition("\nworkers:")[0].splitlines() if line]
    column = len("journal_backlog_bytes  ")  # the values of the node stand in one column
    assert all(line[column - 1] == " " and line[column] != " " for line in values)
    shown = {line[:column].strip(): line[column:] for line in values}
    assert (shown["workers"], shown["open streams"], shown["open calls"]) == ("2", "4", "6")
    assert "probes" in shown
    lines = [line.split() for line in text.splitlines()]
    head, *rows = lines[lines.index(["workers:"]) + 1 :][:3]
    workers = [dict(zip(head, row, strict=True)) for row in rows]
    expected = [("2", "0", "3", "4"), ("8", "1", "1", "2")]
    assert [(w["pid"], w["slot"], w["streams"], w["calls"]) for w in workers] == expected


def test_damaged_lines_of_the_journal_are_told(filled, ops):
    for parked in (3, 0):
        ops.answer = json.dumps({**NODE, "parked": parked}).encode()
        assert filled.json("status")["parked"] == parked
        assert ("3 damaged lines" in filled.run("status").err) == bool(parked)


def test_what_is_not_available_stands_there_by_name(filled, ops):
    filled.ok("channel", "disable", "main")
    text = filled.ok("status")
    assert "channel × model: 1 disabled" in text and "group × model: 1 disabled" in text
    assert any(line.startswith("main ") and " disabled " in line for line in text.splitlines())
    assert any("no_channel" in line for line in text.splitlines())


def test_the_store_is_away_and_the_gateway_runs(filled, ops, tmp_path):
    (tmp_path / "sluice.db").rename(tmp_path / "elsewhere.db")
    ended = filled.run("status", "--json")
    answer = json.loads(ended.out)
    assert ended.code == 0 and "the store" in ended.err
    assert answer["node"] == "web-1" and answer["channels"] is answer["groups"] is None
    assert "web-1" in filled.ok("status")


def test_a_gateway_that_uses_another_store_is_told(installation, ops):
    own = str(installation.folder / "sluice.db")
    for running, warned in ((own, False), ("db.internal:3306/sluice", True)):
        ops.answer = json.dumps({**NODE, "store": running}).encode()
        ended = installation.run("status")
        assert ended.code == 0 and f"store                  {running}" in ended.out
        assert (f"uses the store {running}, the configuration names {own}" in ended.err) == warned

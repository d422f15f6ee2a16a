import hashlib
import json

from tests.vendor import log
from tests.vendor.http1 import Request
from tests.vendor.log import RequestLog


def request(body=b"{}"):
    return Request("POST", "/v1/messages?beta=true", {"host": "x"}, body)


def test_an_entry_says_what_arrived():
    kept = RequestLog()
    body = "ä".encode() * 50_000
    entry = kept.arrived(request(body), 7)
    entry.chunks_sent = 3
    [line] = kept.lines()
    shown = json.loads(line)
    assert shown["n"] == 1
    assert (shown["path"], shown["connection"]) == ("/v1/messages?beta=true", 7)
    assert shown["body"] == body[: 64 * 1024].decode()
    assert shown["sha256"] == hashlib.sha256(body).hexdigest()
    assert (shown["chunks_sent"], shown["finished"], shown["gone_at_ms"]) == (3, False, None)


def test_the_file_has_its_line_at_once(tmp_path):
    kept = RequestLog(tmp_path / "log")
    entry = kept.arrived(request(), 1)
    kept.write(entry)
    entry.finished = True
    [line] = (tmp_path / "log").read_text().splitlines()
    assert json.loads(line)["finished"] is False
    kept.close()


def test_the_bounds(monkeypatch):
    monkeypatch.setattr(log, "ENTRIES_MAX", 3)
    monkeypatch.setattr(log, "BODIES_BYTES_MAX", 100)
    kept = RequestLog()
    for _ in range(5):
        kept.arrived(request(), 1)
    assert [json.loads(line)["n"] for line in kept.lines()] == [3, 4, 5]
    kept.arrived(request(b"x" * 98), 1)
    assert [json.loads(line)["n"] for line in kept.lines()] == [5, 6]


def test_reset_begins_anew():
    kept = RequestLog()
    kept.arrived(request(), 1)
    kept.reset()
    assert list(kept.lines()) == []
    assert kept.arrived(request(), 1).n == 1

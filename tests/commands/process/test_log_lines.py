"""Log lines of the supervisor."""

import json
import sys
import threading

import pytest

from commands.process.logs import FORMS, Log


class Written:
    """A sink in memory."""

    def __init__(self):
        self.lines = []

    def write(self, line):
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        self.lines.append(line.decode())

    def reopen(self):
        self.lines.append("reopened")

    def close(self):
        self.lines.append("closed")

    def getvalue(self):
        return "".join(self.lines)


def test_json_lines():
    stream = Written()
    Log("info", "json", stream).warning("worker died", slot=1, exit_code=-9)
    line = json.loads(stream.getvalue())
    assert line.pop("at").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "supervisor",
        "message": "worker died",
        "slot": 1,
        "exit_code": -9,
    }


def test_text_lines():
    stream = Written()
    Log("info", "text", stream).error("worker died", slot=1, why="a b", who=None)
    assert stream.getvalue().endswith('Z error supervisor: worker died slot=1 why="a b"\n')
    Log("info", "text", stream).info("call", stream=False)
    assert stream.getvalue().endswith(" call stream=false\n")


def test_level():
    stream = Written()
    log = Log("warning", "json", stream)
    log.info("no")
    log.warning("yes")
    assert stream.getvalue().count("\n") == 1


def test_a_closed_stream_ends_nothing():
    class Full(Written):
        def write(self, line):
            raise OSError(28, "No space left on device")

    Log("info", "json", Full()).info("x")


@pytest.mark.parametrize("form", FORMS)
def test_what_nobody_catches_is_a_line_too(form, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", None)
    monkeypatch.setattr(threading, "excepthook", None)
    stream = Written()
    Log("warning", form, stream).take_uncaught()
    sys.excepthook(ValueError, ValueError("a\nbug"), None)
    failing = threading.Thread(target=lambda: 1 / 0)
    failing.start()
    failing.join()
    bug, division = stream.getvalue().splitlines()
    assert "error" in bug and "uncaught: ValueError: a" in bug
    assert "ZeroDivisionError" in division


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", ["two\nlines", "\u2028", "\x1b[31m", "\ud800", "", "a b", '"'])
def test_a_field_cannot_make_a_line(form, text):
    line = FORMS[form](5, "info", "x", "message", {"one": text, "two": None, "three": 3})
    assert len(line.splitlines()) == 1
    if form == "json":
        answer = json.loads(line)
        assert (answer["at"], answer["one"], answer["two"]) == (
            "1970-01-01T00:00:00.005Z",
            text,
            None,
        )
    else:
        assert line.startswith("1970-01-01T00:00:00.005Z info x: message one=")
        assert line.endswith(" three=3") and "two=" not in line


@pytest.mark.parametrize("form", FORMS)
def test_credentials_are_taken_out(form):
    sink = Written()
    Log("info", form, sink).error("key sk-slc-AbCdEf0123456789", url="mysql://u:s3cret@db/x", n=1)
    text = sink.getvalue()
    assert "AbCdEf" not in text and "s3cret" not in text and "mysql://***@db/x" in text
    if form == "json":
        assert json.loads(text)["n"] == 1


def test_it_is_renewed_and_opened_anew():
    first, second = Written(), Written()
    log = Log("warning", "json", first)
    log.reopen()
    log.renew("debug", "text", second)
    log.info("seen")
    assert first.lines == ["reopened", "closed"]
    assert second.getvalue().endswith("info supervisor: seen\n")

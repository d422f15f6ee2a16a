"""Log lines: their two forms, their destinations, and the removal of credentials."""

import json
import sys
import threading

import pytest

from commands.process.logs import FORMS, Log, LogFile, redact


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


def test_json_and_text_lines():
    stream = Written()
    Log("info", "json", stream).warning("worker died", slot=1, exit_code=-9)
    line = json.loads(stream.getvalue())
    assert line.pop("at").endswith("Z")
    head = {"level": "warning", "logger": "supervisor", "message": "worker died"}
    assert line == {**head, "slot": 1, "exit_code": -9}
    Log("info", "text", stream).error("worker died", why="a b", who=None, stream=False)
    assert stream.getvalue().endswith('Z error supervisor: worker died why="a b" stream=false\n')


def test_a_full_disk_ends_nothing():
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
    at = "1970-01-01T00:00:00.005Z"
    if form == "json":
        assert json.loads(line).items() >= {"at": at, "one": text, "two": None}.items()
    else:
        assert line.startswith(f"{at} info x: message one=")
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
    log.info("not seen")
    log.reopen()
    log.renew("debug", "text", second)
    log.info("seen")
    assert first.lines == ["reopened", "closed"]
    assert second.getvalue().endswith("info supervisor: seen\n")


def test_a_file_is_appended_to_and_opened_anew(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"before\n")
    one, other = LogFile(str(path)), LogFile(str(path))
    one.write(b"one\n")
    other.write(b"other\n")
    path.rename(tmp_path / "log.1")
    one.write(b"still old\n")
    one.reopen()
    one.write(b"new\n")
    assert (tmp_path / "log.1").read_bytes() == b"before\none\nother\nstill old\n"
    assert path.read_bytes() == b"new\n"
    assert path.stat().st_mode & 0o007 == 0
    for sink in (one, other):
        sink.close()


def test_a_file_that_cannot_be_opened_is_said_on_standard_error(tmp_path, capfdbinary):
    folder = tmp_path / "missing"
    sink = LogFile(str(folder / "log"))
    sink.write(b"a line\n")
    sys.stderr.flush()
    text = capfdbinary.readouterr().err
    assert b"cannot be opened: No such file" in text and text.endswith(b"a line\n")
    folder.mkdir()
    sink.reopen()
    sink.write(b"found\n")
    assert (folder / "log").read_bytes() == b"found\n"
    sink.close()
    sink.close()


def test_by_the_setting(tmp_path, capfdbinary):
    for name in ("", str(tmp_path / "x")):
        made = LogFile(name)
        made.close()
        made.reopen()
        made.close()
        made.write(b"late\n")
        assert capfdbinary.readouterr().err == b"late\n"


SECRETS = {
    "a key": "sk-slc-7hQm2ZbT4yWc9KxRfP8vN3sJ6dLg5aEu",
    "a token": "slt-7hQm2ZbT4yWc9KxRfP8vN3sJ",
    "openai": "sk-proj-AbCdEf0123456789_-AbCdEf",
    "anthropic": "sk-ant-api03-AbCdEf0123456789",
    "google": "AIzaSyA0123456789abcdefghijklmnopqrstu",
    "groq": "gsk_AbCdEf0123456789",
    "xai": "xai-AbCdEf0123456789",
    "hugging face": "hf_AbCdEf0123456789",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "no known shape": "hunter2-of-the-database",
}
AROUND = [
    "Authorization: Bearer {}",
    "authorization=bearer {}",
    '{{"authorization": "Bearer {}"}}',
    "{{'x-api-key': '{}'}}",
    "{{b'x-goog-api-key': b'{}'}}",
    '"x-api-key": "{}"',
    "X-Api-Key: {}",
    "x-api-key={}",
    "GET /v1beta/models?alt=sse&key={}&x=1",
    "mysql://root:{}@db.internal:3306/sluice",
    "http://{}@proxy:3128",
    "password='{}'",
    "Cookie: sluice_session={}",
    "token={} and more",
]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_in_its_place(secret, around):
    text = around.format(secret)
    cleaned = redact(text)
    assert secret not in cleaned and "***" in cleaned
    assert secret.rpartition("-")[2] not in cleaned
    if text.startswith('{"'):
        json.loads(cleaned)


@pytest.mark.parametrize("secret", [v for k, v in SECRETS.items() if k != "no known shape"])
@pytest.mark.parametrize("around", ["{}", "key {} refused", "a\n{}\nb", '"{}"', "({})", "m={},"])
def test_by_its_shape(secret, around):
    cleaned = redact(around.format(secret))
    assert cleaned == around.format("***")


@pytest.mark.parametrize(
    "text",
    [
        "circuit opened for 5 s: channel=openai-main model=gpt-4.1 upstream_key=1 cause=timing_out",
        "worker died slot=1 worker=4711 signal=SIGKILL next_in_s=0.5",
        "the store is unavailable: db.internal:3306/sluice: Connection refused (111)",
        "journal 01M86YB556B177VXMX4CM7QDN3: a batch cannot be booked as it is",
        "https://api.openai.com/v1/chat/completions",
        "input_tokens=12 output_tokens=30 tokens=42 max_tokens: 5",
        "reload: setting takes effect after a restart setting=server.port",
        "user=alice key_id=01M86YB3M58HP4PA2XTG33X5GG mask-of-a-task desk-job",
    ],
)
def test_other_text_stays(text):
    assert redact(text) == text

"""Log output of a worker: one line each, written by a thread for which nobody has to wait."""

import io
import json
import logging
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import pytest

from commands.process.logs import FORMS, json_line, redact, text_line
from handlers import logs
from handlers.logs import WRITE_MAX, LogThread
from tests.support.client import wait_until

AT = 1_700_000_000.0425  # 2023-11-14T22:13:20.042Z


class Stderr:
    """A standard error whose reader may stop reading, or be gone; counts what is opened."""

    def __init__(self):
        self.opened = 0
        self.reading = threading.Event()
        self.reading.set()
        self.broken = False
        self.writes = 0
        self.written = io.BytesIO()

    def write(self, data):
        assert self.reading.wait(10)
        if self.broken:
            raise BrokenPipeError("nobody reads")
        assert data.endswith(b"\n")  # a write ends at the end of a line
        assert len(data) <= WRITE_MAX or data.count(b"\n") == 1
        self.writes += 1
        self.written.write(data)

    def reopen(self):
        self.opened += 1

    @property
    def lines(self):
        return self.written.getvalue().splitlines()


@pytest.fixture
def stderr(monkeypatch):
    monkeypatch.setattr(logs, "sys", SimpleNamespace())  # pytest patches the real one
    return Stderr()


@pytest.fixture
def started(stderr):
    """Yield started(form, level), which returns a thread that serves the root logger."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    hook = threading.excepthook
    threads = []

    def start(form="json", level="info"):
        thread = LogThread(FORMS[form], stderr, redact)
        threads.append(thread)
        thread.start(level)
        return thread

    yield start
    stderr.reading.set()
    for thread in threads:
        thread.stop()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    threading.excepthook = hook


def of(form):
    return LogThread(form, Stderr(), redact)


def record(message, *args, level=logging.INFO, exc_info=None):
    made = logging.LogRecord("sluice.test", level, __file__, 1, message, args, exc_info)
    made.created, made.msecs = AT, 42.5
    return made


def failure():
    try:
        raise ValueError("a bug\nwith two lines")
    except ValueError:
        return sys.exc_info()


# ---- lines ---------------------------------------------------------------------------------------


def test_a_json_line():
    line = of(json_line).format(record("call %s of %d", "x", 3, level=logging.WARNING))
    assert json.loads(line) == {
        "at": "2023-11-14T22:13:20.042Z",
        "level": "warning",
        "logger": "sluice.test",
        "message": "call x of 3",
    }


def test_a_text_line():
    line = of(text_line).format(record("call %s", "x"))
    assert line == "2023-11-14T22:13:20.042Z info sluice.test: call x"


ODD = ["two\nlines", "a\r\nb", "\x0b\x0c\x1c\x85", "\u2028\u2029", "\x00\x1b[31m", "\ud800", "✓ü",
       ""]  # fmt: skip


@pytest.mark.parametrize("message", ODD)
@pytest.mark.parametrize("form", FORMS)
def test_a_record_is_one_line_whatever_it_holds(message, form):
    line = of(FORMS[form]).format(record(message))
    assert len(line.splitlines()) == 1
    if form == "json":
        assert json.loads(line)["message"] == message
    assert line.encode("utf-8", "backslashreplace")


@pytest.mark.parametrize("form", FORMS)
def test_a_traceback_stands_in_the_line(form):
    line = of(FORMS[form]).format(record("failed", level=40, exc_info=failure()))
    assert len(line.splitlines()) == 1
    assert "failed | Traceback" in line and "ValueError: a bug" in line and "test_logs" in line


@pytest.mark.parametrize(("message", "args"), [
    ("%d", ("x",)), ("%s", ()), ("%s", ("a", "b")), ("%(name)s", ({"other": 1},)), ("%q", (1,)),
])  # fmt: skip
@pytest.mark.parametrize("form", FORMS)
def test_arguments_that_do_not_fit_fail_nobody(message, args, form):
    assert message in of(FORMS[form]).format(record(message, *args))


# ---- the thread ----------------------------------------------------------------------------------


def test_it_takes_over_the_root_logger(started, stderr):
    thread = started()
    logging.getLogger("sluice.test").info("one")
    logging.getLogger("sluice.test").debug("not this")
    thread.write(b"a block\nof calls\n")
    logging.getLogger("sluice.test").error("two %s", "✓")
    thread.stop()
    first, *block, last = stderr.lines
    assert json.loads(first)["message"] == "one"
    assert block == [b"a block", b"of calls"]
    assert json.loads(last)["message"] == "two ✓"
    assert thread.dropped == 0


def test_levels(started, stderr):
    thread = started(level="debug")
    logging.getLogger("sluice.test").debug("seen")
    # These would log each request again.
    for name in ("tornado.access", "tornado.curl_httpclient", "asyncio"):
        logging.getLogger(name).info("never")
        logging.getLogger(name).warning("seen")
    thread.stop()
    assert [json.loads(line)["message"] for line in stderr.lines] == ["seen"] * 4


def test_a_stderr_that_nobody_reads_holds_nobody_up(started, stderr, monkeypatch):
    monkeypatch.setattr(logs, "QUEUE_MAX", 5)
    stderr.reading.clear()
    thread = started()
    began = time.monotonic()
    for number in range(100):
        thread.write(b"%d\n" % number)
    assert time.monotonic() - began < 1
    assert 94 <= thread.dropped <= 95  # the thread may hold one line
    stderr.reading.set()
    thread.stop()
    assert stderr.lines == [b"%d" % number for number in range(100 - thread.dropped)]


def test_a_stderr_that_is_gone_ends_nothing(started, stderr):
    thread = started()
    stderr.broken = True
    thread.write(b"lost\nlost\nlost\n")
    assert wait_until(lambda: thread.dropped == 3)
    stderr.broken = False
    thread.write(b"kept\n")
    thread.stop()
    assert (stderr.lines, thread.dropped) == ([b"kept"], 3)


def test_stop_does_not_wait_for_ever(started, stderr, monkeypatch):
    monkeypatch.setattr(logs, "STOP_WITHIN_S", 0.05)
    monkeypatch.setattr(logs, "QUEUE_MAX", 1)
    stderr.reading.clear()
    thread = started()
    thread.write(b"x\n")
    thread.write(b"x\n")
    began = time.monotonic()
    thread.stop()
    assert time.monotonic() - began < 5


def test_what_nobody_catches_is_a_line_too(started, stderr):
    thread = started()
    logs.sys.excepthook(*failure())
    failing = threading.Thread(target=lambda: 1 / 0)
    failing.start()
    failing.join()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("careful", UserWarning, stacklevel=1)
    thread.stop()
    expected = [("critical", "a bug"), ("critical", "ZeroDivisionError"), ("warning", "careful")]
    for line, (level, words) in zip(map(json.loads, stderr.lines), expected, strict=True):
        assert line["at"].endswith("Z") and line["level"] == level and words in line["message"]


def test_the_level_is_changed_while_it_runs(started, stderr):
    thread = started(level="warning")
    log = logging.getLogger("sluice.test")
    log.info("no")
    thread.set_level("debug")
    log.debug("yes")
    thread.set_level("error")
    log.warning("no")
    thread.stop()
    assert [json.loads(line)["message"] for line in stderr.lines] == ["yes"]


def test_it_opens_the_file_anew_behind_what_is_queued(started, stderr):
    thread = started()
    thread.write(b"before\n")
    thread.reopen()
    thread.stop()
    assert (stderr.opened, stderr.lines) == (1, [b"before"])


def test_credentials_are_taken_out_of_records_and_tracebacks(started, stderr):
    thread = started()
    secret = "sk-slc-AbCdEf0123456789"
    logging.getLogger("sluice.test").warning("key %s", secret)
    try:
        raise ValueError(f"mysql://root:{secret}@db/sluice")
    except ValueError:
        logging.getLogger("sluice.test").exception("failed")
    thread.stop()
    assert len(stderr.lines) == 2 and b"AbCdEf" not in stderr.written.getvalue()


def test_lines_of_a_block_share_writes_that_end_with_a_line(started, stderr):
    thread = started()
    lines = [b"%03d " % number + b"x" * 400 for number in range(100)]
    lines[50] = b"y" * (3 * WRITE_MAX)  # longer than one write to a pipe: written alone
    thread.write(b"\n".join([*lines, b""]))
    thread.stop()
    assert stderr.lines == lines
    assert stderr.writes == 5 + 1 + 5  # ten of the short ones fit into a write

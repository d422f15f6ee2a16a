"""Log lines of the supervisor."""

import io
import json

from commands.log_lines import Log


def test_json_lines():
    stream = io.StringIO()
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
    stream = io.StringIO()
    Log("info", "text", stream).error("worker died", slot=1)
    assert stream.getvalue().endswith("Z ERROR   supervisor: worker died slot=1\n")


def test_level():
    stream = io.StringIO()
    log = Log("warning", "json", stream)
    log.info("no")
    log.warning("yes")
    assert stream.getvalue().count("\n") == 1


def test_a_closed_stream_ends_nothing():
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    Log("info", "json", Full()).info("x")

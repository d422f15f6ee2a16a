"""Where lines go."""

import sys

from commands.process.logs import LogFile, StandardError, sink_of


def test_a_file_is_appended_to_and_opened_anew(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"before\n")
    one, other = LogFile(path), LogFile(path)
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
    sink = LogFile(folder / "log")
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
    assert isinstance(sink_of(""), StandardError)
    made = sink_of(str(tmp_path / "x"))
    made.close()
    made.write(b"late\n")
    assert capfdbinary.readouterr().err == b"late\n"

"""Progress of long work: shown on a terminal, never with --json, never where nobody looks."""

import pytest

from commands.progress import progress
from tests.commands.conftest import record
from tests.support import terminal

CLEARED = "\r\x1b[K"


@pytest.fixture
def recorded(filled):
    filled.write_records(*map(record, range(3)))
    return filled


def shown(installation, *args, **options):
    code, text = terminal.run([*args, "--config", str(installation.config)], **options)
    assert code in (0, 1), text
    return text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("usage", "verify"), "verifying: 0 records"),
        (("usage", "rebuild-rollups"), "rebuilding: 2026"),
        (("books", "verify"), "verifying 2026"),
        (("secrets", "rotate", "cipher"), "resealing: 1 of 1 channels"),
    ],
)
def test_long_work_is_told_in_one_line(recorded, args, message):
    text = shown(recorded, *args)
    assert CLEARED + message in text
    # nothing of it remains
    assert message not in text.rpartition(CLEARED)[2]
    assert CLEARED not in shown(recorded, *args, "--json")


def test_an_export_into_a_file(recorded, tmp_path):
    with open(tmp_path / "all.ndjson", "wb") as file:
        assert "exporting: 0 records" in shown(recorded, "usage", "export", redirected=file)
    assert (tmp_path / "all.ndjson").read_text().count("\n") == 3
    # an export to the terminal is not mixed with progress
    assert CLEARED not in shown(recorded, "usage", "export")


def test_no_terminal_no_line(recorded):
    assert recorded.run("usage", "rebuild-rollups").err == ""


def test_a_line_is_cut_to_the_terminal_and_not_written_too_often(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress(False) as line:
        for number in range(1000):
            line.tell(f"{number}: " + "x" * 200)
    err = capsys.readouterr().err
    assert err.startswith(CLEARED + "0: x") and err.endswith(CLEARED)
    assert 2 <= err.count(CLEARED) < 100
    assert max(map(len, err.split(CLEARED))) < 80

"""Output and exit codes of commands."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from commands import output
from conf.configuration import ConfigError
from store.values.errors import NotFound, Refused, StoreUnavailable

ROOT = Path(__file__).resolve().parents[2]


def ended(callback) -> int:
    return output.run(click.Command("x", callback=callback), [], "sluice x")


def raising(error):
    def callback():
        raise error

    return callback


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigError(["g.toml:3: bad", "g.toml:4: worse"]), 3, "g.toml:3: bad\ng.toml:4: worse\n"),
        (Refused(["one", "two"]), 1, "error: one\nerror: two\n"),
        (NotFound("no user"), 1, "error: the store: no user\n"),
        (StoreUnavailable("mysql://u:pw@h/d is away"), 1, "error: the store: mysql://***@h/d"),
        (click.ClickException("not so"), 1, "error: not so\n"),
        (click.UsageError("which?"), 2, "error: which?"),
        (KeyboardInterrupt(), 130, ""),
        (FileNotFoundError(2, "No such file", "f.toml"), 1, "error: f.toml: No such file\n"),
    ],
)
def test_exit_codes(capsys, error, code, message):
    assert ended(raising(error)) == code
    got = capsys.readouterr()
    assert message in got.err
    assert got.out == ""
    assert "Traceback" not in got.err


def test_results_and_unexpected_errors():
    assert ended(lambda: None) == 0
    assert ended(lambda: 3) == 3
    assert ended(lambda: click.get_current_context().exit(1)) == 1
    with pytest.raises(ZeroDivisionError):
        ended(lambda: 1 // 0)


def test_mask():
    text = "mysql://user:p%40ss@db/x and sk-slc-abcdefgh123 and sk-ant_x.y-z"
    assert output.mask(text) == "mysql://***@db/x and sk-*** and sk-***"
    assert output.mask("https://a.example/b task-force-one") == "https://a.example/b task-force-one"


def test_table(capsys):
    rows = [{"name": "a", "n": 10, "on": True}, {"name": "longer", "models": ["x", "y"]}]
    output.print_table(rows, ("name", "n", "on", "models"))
    assert capsys.readouterr().out == (
        "name    n   on   models\na       10  yes  -\nlonger  -   -    x,y\n"
    )

    output.print_table([], ("name", "id"))
    assert capsys.readouterr().out == "name  id\n"
    # control characters do not reach the terminal
    output.print_fields({"agent": "a\x1b[31mb\n", "price": {"input": "2"}})
    assert capsys.readouterr().out == "agent  a�[31mb�\nprice  input=2\n"
    output.print_json({"a": ["é", None]})
    assert json.loads(capsys.readouterr().out) == {"a": ["é", None]}


def test_broken_pipe_is_quiet():
    script = (
        "import click, sys; from commands import output\n"
        "write = lambda: [click.echo('y' * 1000) for _ in range(1000)]\n"
        "many = click.Command('x', callback=write)\n"
        "sys.exit(output.run(many, [], 'x'))"
    )
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, cwd=ROOT
    )
    os.close(writer)
    os.read(reader, 10)
    os.close(reader)
    _, text = process.communicate(timeout=10)
    assert (process.returncode, text) == (1, b"")


def test_a_word_for_a_number_is_refused_in_plain_words(capsys):
    ports = click.Option(["--port"], type=click.IntRange(1, 9))
    command = click.Command("x", callback=print, params=[ports])
    assert output.run(command, ["--port", "abc"], "thing") == 2
    assert "'--port': 'abc' must be a whole number\n" in capsys.readouterr().err


def test_a_table_in_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    rows = [{"name": "a", "since": "2026-11-24T14:36:28.123Z", "reason": "x" * 20}]
    output.print_table(rows, ("name", "since", "reason"))
    got = capsys.readouterr()
    assert max(map(len, got.out.splitlines())) <= 30
    assert "not shown, too wide: reason; --json shows all" in got.err
    output.print_fields({"name": "a b c " * 10})
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 30

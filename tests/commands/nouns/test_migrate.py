"""`migrate status|plan|up` on SQLite."""

import json
import time

import pytest

from commands import output
from commands.nouns import migrate


@pytest.fixture
def run(tmp_path, capsys):
    def migrate_with(*args):
        path = tmp_path / "gateway.toml"
        path.touch()
        code = output.run(migrate.command, [*args, "--config", str(path)], "sluice migrate")
        captured = capsys.readouterr()
        errors.append(captured.err)
        return code, captured.out

    errors = []
    migrate_with.errors = errors
    return migrate_with


def test_from_nothing_to_up_to_date(run):
    code, out = run("status", "--json")
    before = json.loads(out)
    assert code == 0
    assert before["pending"] == len(before["migrations"]) > 0
    code, sql = run("plan")
    assert code == 0
    assert "CREATE TABLE" in sql and sql.endswith(";\n")
    assert json.loads(run("up", "--json")[1])["applied"] == [
        step["name"] for step in before["migrations"]
    ]
    after = json.loads(run("status", "--json")[1])
    assert after["pending"] == 0
    assert all(step["applied_at"].endswith("Z") for step in after["migrations"])
    assert run("plan") == (0, "")
    assert run("up") == (0, "nothing was pending\n")
    assert "applied_at" in run("status")[1]
    assert set(run.errors) == {""}  # what is done at once needs no progress


def test_what_takes_long_says_so(run, monkeypatch):
    monkeypatch.setattr(migrate, "PROGRESS_S", 0.01)
    real = migrate.migrate.up

    def slow(db, report):
        applied = real(db, report)
        report("0009_slow: day 3 of 30")
        deadline = time.monotonic() + 10
        while "day 3 of 30" not in seen and time.monotonic() < deadline:
            time.sleep(0.01)
        return applied

    seen = []
    echo = migrate.click.echo

    def noting(text, **options):
        seen.extend(["day 3 of 30"] * ("0009_slow: day 3 of 30 (" in text))
        echo(text, **options)

    monkeypatch.setattr(migrate.migrate, "up", slow)
    monkeypatch.setattr(migrate.click, "echo", noting)
    code, out = run("up", "--json")
    assert code == 0 and json.loads(out)["applied"]
    assert "0009_slow: day 3 of 30 (" in run.errors[-1]

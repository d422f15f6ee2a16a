"""`migrate`: status, plan and up on SQLite, and the copy of a store."""

import json
import time

import pytest

from commands import output
from commands.nouns import migrate
from commands.process import node
from tests.commands.conftest import document, record


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
    assert set(run.errors) == {""}  # quick steps show no progress


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


def test_the_move_as_documented(installation, mariadb):
    """The commands of docs/operations.md; each names its store."""
    installation.apply(document())
    installation.write_records(*(record(number) for number in range(5)))
    exported = installation.ok("usage", "export", "--format", "ndjson")
    url = mariadb.fresh_url()
    place = url.split("@")[1]
    out = installation.ok("migrate", "copy", url, "--switch")
    assert f"tables to {place}, and verified them" in out
    assert f"store.url of {installation.config} is set" in out
    assert f"store: {place} " in installation.ok("check")
    assert installation.ok("books", "verify") == f"the books of {place} are correct\n"
    assert installation.json("usage", "verify")["store"] == place
    assert f"{place} answers" in installation.run("doctor").out
    assert installation.ok("usage", "export", "--format", "ndjson") == exported
    assert "is not empty" in installation.refused("migrate", "copy", url)
    back = installation.json("migrate", "copy", f"sqlite:///{installation.folder}/b.db", "--switch")
    assert back["switched"] and installation.json("check")["store"] == back["store"]
    assert back["rows"]["usage_records"] == 5


def test_without_the_switch_it_says_what_is_left_to_do(installation, tmp_path):
    out = installation.ok("migrate", "copy", f"sqlite:///{tmp_path}/other.db")
    assert "still names the old store" in out and "config set store.url URL" in out
    assert installation.json("check")["store"] == str(installation.folder / "sluice.db")
    assert "URL: " in installation.refused("migrate", "copy", "postgres://x")


def test_a_switch_that_would_not_count_is_refused_first(installation, tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_STORE__URL", installation.store_url)
    text = installation.refused("migrate", "copy", f"sqlite:///{tmp_path}/other.db", "--switch")
    assert "store.url comes from environment SLUICE_STORE__URL" in text
    assert not (tmp_path / "other.db").exists()


def test_a_gateway_that_runs_is_in_the_way(installation, tmp_path):
    lock = node.claim(installation.folder / "journal")
    try:
        text = installation.refused("migrate", "copy", f"sqlite:///{tmp_path}/other.db")
        assert "is in use by another gateway" in text
    finally:
        node.os.close(lock)

"""`migrate status|plan|up` on SQLite."""

import json

import pytest

from commands import migrate, output


@pytest.fixture
def run(tmp_path, capsys):
    def migrate_with(*args):
        path = tmp_path / "gateway.toml"
        path.touch()
        code = output.run(migrate.command, [*args, "--config", str(path)], "sluice migrate")
        return code, capsys.readouterr().out

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

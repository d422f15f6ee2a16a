"""`config set` as an operator types it."""

import json

URL = "mysql://sluice:s3cret@db.internal:3306/sluice"


def test_a_setting_is_written_and_in_force(installation):
    before = installation.config.read_text()
    out = installation.ok("config", "set", "server.drain_timeout_s", "120")
    assert out == f"server.drain_timeout_s written to {installation.config}\n"
    text = installation.config.read_text()
    assert text == before.replace("#drain_timeout_s = 600", "drain_timeout_s = 120")
    rows = {row["name"]: row for row in installation.json("check")["settings"]}
    assert rows["server.drain_timeout_s"]["value"] == 120
    assert rows["server.drain_timeout_s"]["origin"].startswith(f"{installation.config}:")


def test_a_password_is_read_from_stdin_and_not_shown(installation):
    ended = installation.run("config", "set", "store.url", "-", "--json", stdin=f"{URL}\n")
    assert ended.code == 0 and "s3cret" not in ended.out + ended.err
    assert json.loads(ended.out)["value"] == "mysql://***@db.internal:3306/sluice"
    assert f'url = "{URL}"' in installation.config.read_text()
    checked = installation.run("check")
    assert "store: db.internal:3306/sluice" in checked.out and "s3cret" not in checked.out


def test_what_is_not_in_order_is_not_written(installation):
    before = installation.config.read_text()
    for name, value, text in (
        ("store.ulr", URL, "did you mean store.url?"),
        ("server.port", "eighty", "server.port: an integer from"),
        ("hub.port", "8000", "hub.port 8000 is also server.port"),
    ):
        ended = installation.run("config", "set", name, value)
        assert (ended.code, ended.out) == (3, "") and text in ended.err
    assert installation.config.read_text() == before
    # a value that was wrong before can be corrected
    installation.config.write_text(before.replace("#port = 8000", 'port = "x"'))
    assert installation.run("check").code == 3
    installation.ok("config", "set", "server.port", "8200")
    installation.ok("check")


def test_an_environment_that_says_otherwise_is_named(installation, monkeypatch):
    monkeypatch.setenv("SLUICE_SERVER__PORT", "8300")
    ended = installation.run("config", "set", "server.port", "8100")
    assert ended.code == 0 and "environment SLUICE_SERVER__PORT also sets server.port" in ended.err
    assert "\nport = 8100\n" in installation.config.read_text()


def test_a_file_that_is_not_there(installation, tmp_path):
    installation.config = tmp_path / "other.toml"
    ended = installation.run("config", "set", "server.port", "8100")
    assert ended.code == 3 and "other.toml: cannot be read" in ended.err

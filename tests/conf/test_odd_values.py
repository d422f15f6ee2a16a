"""No value of any setting causes a traceback, wherever it comes from."""

import contextlib

import pytest

from commands import output
from commands.nouns import init
from conf.configuration import ConfigError, load
from conf.settings import SETTINGS, to_plain
from store.db.database import discard, open_database

ODD = (
    *("", " ", "\0", "\udc80", "a\nb", "\u202e", "é", "🔑", "'", '"', "\\", "%", "=", "#"),
    *("-1", "0", "9" * 5000, "1e999", "nan", "0x10", "1979-05-27", "07:32:00", "true", "null"),
    *("[" * 5000, "{" * 5000, "[1,2]", '["\\u0000"]', "{a=1}", "[[]]", '["x"]', "x" * 5000),
    *("a" * 64 + ".example", "..", "::1%eth0", "[::1]", "http://[", "https://\u2100.com", "//"),
    *("https://gw.example:99999", "sqlite:///\0", "sqlite:////", "sqlite:///" + "x" * 4000),
    *("mysql://", "mysql://[::1/d", "mysql://h:99999/d", "mysql://\u2100/d", "mysql://h/%ff"),
    *("mysql://u:\udc80@h/d", "mysql://%zz@h/d", "mysql://u:p@h/d?x", "mysql://:@:/:"),
)
every_setting = pytest.mark.parametrize("name", SETTINGS)


def opened(loaded) -> None:
    """Do what every process first does with the settings."""
    discard(open_database(loaded.settings.store.url))


@every_setting
def test_from_the_command_line_and_the_environment(name):
    variable = f"SLUICE_{name.replace('.', '__')}".upper()
    for value in ODD:
        with contextlib.suppress(ConfigError):
            opened(load(None, [f"{name}={value}"], {}))
        with contextlib.suppress(ConfigError):
            opened(load(None, [], {variable: value}))


@every_setting
def test_from_a_file(name, tmp_path):
    section, _, key = name.partition(".")
    path = tmp_path / "gateway.toml"
    for value in ODD:
        for text in (value, f'"{value}"', f"'{value}'"):
            path.write_bytes(f"[{section}]\n{key} = {text}\n".encode("utf-8", "surrogateescape"))
            with contextlib.suppress(ConfigError):
                opened(load(path, [], {}))


@every_setting
def test_init_makes_a_file_that_says_the_same(name, tmp_path, capsys):
    url = ("--set", f"store.url=sqlite:///{tmp_path}/s.db")
    for number, value in enumerate(ODD):
        if name == "store.url":  # would create databases in other folders
            continue
        folder = tmp_path / str(number)
        args = [str(folder), *url, "--set", f"{name}={value}"]
        code = output.run(init.command, args, "sluice init")
        assert code in (0, 3), capsys.readouterr().err
        if code == 0:
            asked = load(None, [f"{name}={value}"], {}).settings
            found = load(folder / "gateway.toml", [], {}).settings
            if name not in ("journal.dir", "log.file"):  # relative to the folder of the file
                section, key = name.split(".")
                assert to_plain(found)[section][key] == to_plain(asked)[section][key]

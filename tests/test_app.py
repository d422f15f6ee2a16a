"""The entry: finds commands by name, answers fast, and imports nothing that was not asked for."""

import importlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

import app
from commands.nouns.version import VERSION, revision

ROOT = Path(__file__).resolve().parents[1]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "app.py"), *args]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=20)


@pytest.mark.parametrize("name", [*app.COMMANDS, *app.HIDDEN])
def test_every_command_has_its_module(name):
    module = importlib.import_module(app.module_of(name))
    assert isinstance(getattr(module, "command", None), click.Command) or hasattr(module, "main")


@pytest.mark.parametrize("name", app.COMMANDS)
def test_every_command_explains_itself(name):
    command = importlib.import_module(app.module_of(name)).command
    pending = [command]
    while pending:
        one = pending.pop()
        assert one.help, one.name
        if isinstance(one, click.Group):
            pending += one.commands.values()


def test_version():
    got = run("version")
    assert (got.returncode, got.stdout) == (0, f"sluice {VERSION} ({revision()})\n")
    assert run("--version").stdout == got.stdout
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION


def test_help_lists_the_commands():
    got = run("--help")
    assert got.returncode == 0
    shown = {line.split()[0] for line in got.stdout.splitlines() if line.startswith("  ")}
    assert shown == {*app.COMMANDS}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["chek"], "'check'"),
        ([], "Usage"),
        (["check", "-x"], "-x"),
        (["--config", "x.toml", "status"], "behind the command: sluice COMMAND --config"),
    ],
)
def test_wrong_usage(args, said):
    got = run(*args)
    assert got.returncode == 2
    assert said in got.stderr and got.stdout == ""


def test_no_configuration(tmp_path):
    command = [sys.executable, str(ROOT / "app.py"), "check"]
    got = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=20, cwd=tmp_path
    )
    assert got.returncode == 3
    assert "--config FILE" in got.stderr and "Traceback" not in got.stderr


HEAVY = {"tornado", "pycurl", "peewee", "pymysql", "ujson", "cryptography", "asyncio", "ssl"}


@pytest.mark.parametrize(
    ("args", "forbidden"),
    [
        (["version"], HEAVY),
        (["--help"], HEAVY | {"click", "msgspec"}),
        (["check"], HEAVY),
        (["serve"], HEAVY | {"click", "dataclasses", "http.server", "logging"}),
    ],
)
def test_imports_stay_light(args, forbidden, tmp_path):
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import app\n"
        f"app.main({args!r}); print('\\n', *sys.modules)"
    )
    command = [sys.executable, "-c", script]
    got = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=20, cwd=tmp_path
    )
    loaded = set(got.stdout.rpartition("\n ")[2].split())
    assert "app" in loaded and not loaded & forbidden


def test_a_missing_package_is_told_with_its_cure(tmp_path):
    (tmp_path / "click").mkdir()
    (tmp_path / "click" / "__init__.py").write_text("raise ModuleNotFoundError(name='click')")
    got = subprocess.run(
        [sys.executable, str(ROOT / "app.py"), "user", "list"], check=False, capture_output=True,
        text=True, timeout=20, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (got.returncode, got.stdout) == (1, "")
    assert got.stderr.startswith("error: the Python package click is missing from ")
    assert got.stderr.endswith("run ./sluice, or: make venv && .venv/bin/python app.py\n")


def test_an_older_python_is_told_its_version():
    """With the version of this one changed."""
    script = (
        "import runpy, sys; sys.version_info = (3, 8, 1, 'final', 0)\n"
        f"runpy.run_path({str(ROOT / 'app.py')!r}, run_name='__main__')"
    )
    got = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=20
    )
    assert got.returncode == 1
    assert got.stderr == f"error: Python 3.11 or newer is needed; {sys.executable} is 3.8\n"


def test_no_make_is_told_with_its_cure(tmp_path):
    checkout, programs = tmp_path / "checkout", tmp_path / "bin"
    checkout.mkdir()
    programs.mkdir()
    shutil.copy(ROOT / "sluice", checkout / "sluice")
    for name in ("sh", "readlink", "dirname"):
        (programs / name).symlink_to(shutil.which(name))
    got = subprocess.run(
        [checkout / "sluice", "version"], check=False, capture_output=True, text=True, timeout=20,
        env={"PATH": str(programs)},
    )  # fmt: skip
    assert got.returncode == 1
    assert "no make to build it" in got.stderr and "apt-get install make" in got.stderr

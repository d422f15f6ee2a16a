"""The entry: finds commands by name, answers fast, and imports only what the command needs."""

import importlib
import json
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
HEAVY = {"tornado", "pycurl", "peewee", "pymysql", "ujson", "cryptography", "asyncio", "ssl"}


def execute(*command, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=20, **options
    )


def run(*args: str, **options) -> subprocess.CompletedProcess[str]:
    return execute(sys.executable, str(ROOT / "app.py"), *args, **options)


@pytest.mark.parametrize("name", [*app.COMMANDS, *app.HIDDEN])
def test_every_command_has_its_module_and_explains_itself(name):
    module = importlib.import_module(app.module_of(name))
    pending = [module.command] if name in app.COMMANDS else []
    assert pending or isinstance(getattr(module, "command", None), click.Command) or module.main
    while pending:
        command = pending.pop()
        assert command.help, command.name
        pending += getattr(command, "commands", {}).values()


def test_version_and_help():
    printed = run("version")
    assert (printed.returncode, printed.stdout) == (0, f"sluice {VERSION} ({revision()})\n")
    assert run("--version").stdout == printed.stdout
    assert json.loads(run("version", "--json").stdout)["revision"] == revision()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    printed = run("--help")
    shown = {line.split()[0] for line in printed.stdout.splitlines() if line.startswith("  ")}
    assert (printed.returncode, shown) == (0, {*app.COMMANDS})


@pytest.mark.parametrize(
    ("args", "status", "text"),
    [
        (["chek"], 2, "'check'"),
        ([], 2, "Usage"),
        (["check", "-x"], 2, "-x"),
        (["--config", "x.toml", "status"], 2, "after the command: sluice COMMAND --config"),
        (["check"], 3, "--config FILE"),
    ],
)
def test_wrong_usage(args, status, text, tmp_path):
    printed = run(*args, cwd=tmp_path)
    assert (printed.returncode, printed.stdout) == (status, "")
    assert text in printed.stderr and "Traceback" not in printed.stderr


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
    printed = execute(sys.executable, "-c", script, cwd=tmp_path)
    loaded = set(printed.stdout.rpartition("\n ")[2].split())
    assert "app" in loaded and not loaded & forbidden


def test_what_is_missing_is_named_with_its_remedy(tmp_path):
    """Missing: a package, a newer Python (simulated by a changed version), make."""
    (tmp_path / "click").mkdir()
    (tmp_path / "click" / "__init__.py").write_text("raise ModuleNotFoundError(name='click')")
    failed = run("user", "list", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: the Python package click is missing from ")
    assert failed.stderr.endswith("run ./sluice, or: make venv && .venv/bin/python app.py\n")
    script = (
        "import runpy, sys; sys.version_info = (3, 8, 1, 'final', 0)\n"
        f"runpy.run_path({str(ROOT / 'app.py')!r}, run_name='__main__')"
    )
    failed = execute(sys.executable, "-c", script)
    message = f"error: Python 3.11 or newer is needed; {sys.executable} is 3.8\n"
    assert (failed.returncode, failed.stderr) == (1, message)
    shutil.copy(ROOT / "sluice", tmp_path / "sluice")
    for name in ("sh", "readlink", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name))
    failed = execute(tmp_path / "sluice", "version", env={"PATH": str(tmp_path)})
    assert failed.returncode == 1
    assert "no make to build it" in failed.stderr and "apt-get install make" in failed.stderr

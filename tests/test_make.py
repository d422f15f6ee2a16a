"""The output of make before it starts something that takes long."""

import shutil
import subprocess
from pathlib import Path

import pytest

from conf.version import CODE

ROOT = Path(__file__).resolve().parents[1]
SLOW = ("pip install", "-m venv", "-m pytest", "apt-get -y")


@pytest.fixture
def dry_run(tmp_path):
    """Return dry_run(target), which returns the lines that make would run in a checkout without
    .venv."""
    for name in ("Makefile", "requirements.txt", "requirements-dev.txt"):
        shutil.copy(ROOT / name, tmp_path)

    def run(target: str) -> list[str]:
        argv = ["make", "-n", target]
        done = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.replace("\\\n", " ").splitlines()

    return run


@pytest.mark.parametrize("target", ["run", "test", "check", "venv"])
def test_a_line_for_each_step_that_takes_its_time(dry_run, target):
    lines = dry_run(target)
    slow = [number for number, line in enumerate(lines) if any(word in line for word in SLOW)]
    assert len(slow) > 1
    for number in slow:
        told = lines[number].partition("apt-get -y")[0] + lines[number - 1]
        assert "echo 'make: " in told, lines[number]


def test_the_code_is_compiled_with_the_environment(dry_run):
    (line,) = [line for line in dry_run("venv") if "compileall" in line]
    assert set(CODE) | {".venv/lib"} <= set(line.split())


def test_ci_runs_what_must_pass(dry_run):
    assert (ROOT / ".ci/run").read_text().rstrip().endswith("exec make check")
    lines = "\n".join(dry_run("check"))
    for step in ("ruff format --check", "ruff check", "mypy", "pytest"):
        assert step in lines

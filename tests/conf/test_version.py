"""The revision: equal for equal files, and in a checkout the commit that git reports."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conf import version

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def installed(tmp_path):
    """Return installed(name), which returns a folder with the code, copied as an operator does."""

    def copy(name: str) -> Path:
        (tmp_path / name).mkdir()
        for part in version.CODE:
            source = ROOT / part
            (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name / part)
        return tmp_path / name

    return copy


def revision_in(folder: Path) -> str:
    code = "from conf.version import revision; print(revision())"
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout[:-1]


def git(folder: Path, *args: str) -> str:
    argv = ["git", "-c", "user.name=alice", "-c", "user.email=alice@sluice.example", *args]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout


def test_copies_have_one_build_id_until_a_file_differs(installed):
    one, two = installed("one"), installed("two")
    assert revision_in(one) == revision_in(two) == f"build-{version.build_id()}"
    (two / "conf/nginx.conf").write_text("as the operator wants it")
    (two / "handlers/.routes.py.swp").write_text("open in an editor")
    assert revision_in(one) == revision_in(two)
    (two / "handlers/hub/static/more.txt").write_text("more")
    assert revision_in(one) != revision_in(two)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_is_that_of_git(installed):
    folder = installed("one")
    build = revision_in(folder)
    for step in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        git(folder, *step)
    named = f"git-{git(folder, 'rev-parse', 'HEAD')[: version.DIGITS]}.{build}"
    assert revision_in(folder) == named
    git(folder, "pack-refs", "--all")
    assert revision_in(folder) == named
    git(folder, "worktree", "add", "-q", str(folder.parent / "tree"))
    assert revision_in(folder.parent / "tree") == named
    git(folder, "checkout", "-q", "--detach")
    assert revision_in(folder) == named

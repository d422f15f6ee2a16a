"""The version of this program, and the id that distinguishes two installations of a version.

One place, for commands, metrics, backups and packages (ADR 0035). Standard library only.
"""

import hashlib
import os
from pathlib import Path

VERSION = "0.1.0"

ROOT = Path(__file__).resolve().parents[1]
CODE = ("adapters", "app.py", "commands", "conf", "demo", "handlers", "operations", "store")
SAMPLES = str(ROOT / "conf")  # in the same folder as modules; an operator may edit them
CODE_CHANGED = "code changed, restart"
DIGITS = 12


def build_id() -> str:
    """Return a digest of names and contents of the installed code, computed anew: 12 digits.

    It is the same for the same files in any folder. Takes 20 ms. Raises OSError.
    """
    digest = hashlib.blake2b(digest_size=DIGITS // 2)
    for path in sorted(_files([ROOT / name for name in CODE])):
        content = Path(path).read_bytes()
        digest.update(f"{path[len(str(ROOT)) :]}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def revision(build: str = "") -> str:
    """Return `build-ID`, preceded by `git-COMMIT.` in a checkout. `build`: its ID, if known.

    The commit tells where the code comes from, and the ID also shows later edits.
    """
    commit = _git_commit()
    return (f"git-{commit}." if commit else "") + f"build-{build or build_id()}"


def _files(paths: list[Path]) -> list[str]:
    """Return the files below the paths, without samples and hidden files."""
    files = []
    stack = [str(path) for path in paths]
    while stack:
        path = stack.pop()
        if os.path.isdir(path):
            if not path.endswith("__pycache__"):
                stack += [entry.path for entry in os.scandir(path) if entry.name[0] != "."]
        elif path.endswith(".py") or not path.startswith(SAMPLES):
            files.append(path)
    return files


def _git_commit() -> str:
    """Return the commit that is checked out, 12 digits, without running git; empty if there is
    none."""
    folder = ROOT / ".git"
    try:
        if folder.is_file():  # in a worktree
            folder = ROOT / folder.read_text().removeprefix("gitdir:").strip()
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head[:DIGITS]
        name = head.removeprefix("ref: ")
        common = folder / "commondir"
        if common.is_file():
            folder = folder / common.read_text().strip()
        if (folder / name).is_file():
            return (folder / name).read_text()[:DIGITS]
        packed = (folder / "packed-refs").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return next((line[:DIGITS] for line in packed if line.endswith(f" {name}")), "")

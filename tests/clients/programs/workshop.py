"""The common part of the Python programs of this folder: the tools of a session, and the loop over
sessions.

A program runs with the packages of tests/clients/requirements.txt. It reads the sessions as JSON,
plays them one after the other, and prints the results.
"""

import json
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

ROUNDS_MAX = 8


def read_file(path: str) -> str:
    """Reads a file."""
    return Path(path).read_text()


def edit_file(path: str, old: str, new: str) -> str:
    """Replaces a text in a file by another one."""
    file = Path(path)
    text = file.read_text()
    if text.count(old) != 1:
        raise ValueError(f"the text is there {text.count(old)} times")
    file.write_text(text.replace(old, new))
    return "The file was changed."


def write_file(path: str, content: str) -> str:
    """Writes a file."""
    Path(path).write_text(content)
    return "The file was written."


def run_command(command: str, folder: str) -> str:
    """Runs a line of the shell in a folder."""
    done = subprocess.run(
        command, check=False, shell=True, cwd=folder, capture_output=True, text=True
    )
    return done.stdout + done.stderr


TOOLS = {tool.__name__: tool for tool in (read_file, edit_file, write_file, run_command)}


def call(name: str, arguments: dict) -> str:
    """Return a tool's result; an error is a result too."""
    try:
        return TOOLS[name](**arguments)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"Error: {error!r}"


def play(session: Callable[[dict, str], str]) -> None:
    """Play the sessions of standard input: `session(told, prompt)` returns the last text."""
    told = json.load(sys.stdin)
    found = []
    for one in told["sessions"]:
        try:
            found.append({"text": session({**told, **one}, one["prompt"])})
        except Exception:  # noqa: BLE001  the test shows what went wrong, whatever it was
            found.append({"error": traceback.format_exc()})
    print(json.dumps(found))

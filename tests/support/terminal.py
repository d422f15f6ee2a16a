"""Commands on a terminal: a pseudo-terminal that a test types on and reads."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60


def run(args, typed="", env=None, redirected=None):
    """Run a command; return (exit code, what the terminal showed). `redirected`: a file for its
    stdout."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "app.py"), *args],
        stdin=theirs,
        stdout=theirs if redirected is None else redirected,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", **(env or {})},
    )
    os.close(theirs)
    try:
        os.write(ours, typed.encode())
        shown = _read(ours)
        return process.wait(TIMEOUT_S), shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read(terminal):
    shown, deadline = b"", time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            return shown.decode()
        if not piece:
            return shown.decode()
        shown += piece
    raise TimeoutError(shown)

"""Commands of the gateway in separate processes that need not start an interpreter.

`run` runs a command as an operator types it. This file, run as a program, imports everything and
forks itself for each command; the fork gets the arguments, environment, folder and the three
standard streams of a new process. Only the start of the interpreter and the imports are left out:
0.2 s of CPU a command. tests/test_app.py tests what a fresh interpreter does.
"""

import atexit
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

import argon2

from store.values import passwords

ROOT = Path(__file__).resolve().parents[2]
MESSAGE_BYTES = 1 << 17
TIMEOUT_S = 60

_forker: socket.socket | None = None


def run(args: list[str], stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Run one command to its end. Raises TimeoutError if it does not end."""
    if "LD_PRELOAD" in os.environ:  # a fake clock works only in a newly started program
        argv = [sys.executable, str(ROOT / "app.py"), *args]
        return subprocess.run(
            argv, check=False, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    ends, tell = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ends, tell, _file(stdin) as given, _file() as out, _file() as err:
        what = {"args": args, "environ": dict(os.environ), "folder": os.getcwd()}
        streams = [one.fileno() for one in (given, out, err, tell)]
        socket.send_fds(_start(), [json.dumps(what).encode()], streams)
        tell.close()
        ends.settimeout(TIMEOUT_S)
        code = int(ends.recv(16) or b"-1")  # empty: the command was killed
        return subprocess.CompletedProcess(args, code, _text(out), _text(err))


def hash_passwords_cheaply() -> None:
    """Hash at argon2's lowest cost in this process; verification uses the cost that a hash names.

    tests/store/values/test_passwords.py checks the cost that operators get.
    """
    passwords._HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def _file(text: str = "") -> IO[bytes]:
    made = tempfile.TemporaryFile()  # noqa: SIM115  the caller's `with` closes it
    made.write(text.encode())
    made.seek(0)
    return made


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _start() -> socket.socket:
    global _forker
    if _forker is None:
        _forker, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.commands", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # not stopped by Ctrl-C
            )
        atexit.register(process.wait)
        atexit.register(_forker.close)
    return _forker


def main(requests: socket.socket) -> None:
    """Fork for each request until the test process has ended."""
    app = importlib.import_module("app")
    for name in app.COMMANDS:
        importlib.import_module(app.module_of(name))
    importlib.import_module("commands.output")
    hash_passwords_cheaply()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits: the fork reports its exit code
    while True:
        data, fds, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 4)
        if not data:
            return
        if os.fork() == 0:
            requests.close()
            _command(app, json.loads(data), fds)
        for fd in fds:
            os.close(fd)


def _command(app: Any, what: dict[str, Any], fds: list[int]) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, fd in enumerate(fds[:3]):
            os.dup2(fd, number)
        os.environ.clear()
        os.environ.update(what["environ"])
        os.chdir(what["folder"])
        sys.argv = ["app.py", *what["args"]]
        code = app.main(what["args"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  told as an interpreter tells it
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(fds[3], str(code).encode())
        os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))

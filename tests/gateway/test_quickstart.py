"""`quickstart` as a user runs it: type it, paste what it prints, press Ctrl-C."""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import leash
from tests.support.client import wait_until
from tests.support.gateway import HOST, ROOT
from tests.support.ports import free_port
from tests.support.programs import program

READY_S = 20
END_S = 10
# Minimum time between the first and the last chunk of an answer; zero if it was held back.
STREAMED_S = 0.1
# pattern of a whole stream's last line, by the title of the family
LAST_LINES = {
    "Chat completions": r"data: \[DONE\]",
    "Responses": r'data: \{"type":"response\.completed",.*\}',
    "Messages": r'data: \{"type":"message_stop"\}',
    "Generate content": r'data: \{.*"finishReason":"STOP".*\}',
}
VENDOR_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")


@pytest.fixture
def curl():
    return program("curl")


class Terminal:
    """A terminal in which quickstart runs: a process group of its own, with its output in a
    file."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.ops_port = free_port()
        while str(self.ops_port) in args:
            self.ops_port = free_port()
        self._out = folder / f"terminal-{time.monotonic_ns()}.txt"
        environment = {k: v for k, v in os.environ.items() if k not in VENDOR_KEYS}
        with self._out.open("wb") as out:
            self.process = leash.Popen(
                [
                    *(sys.executable, str(ROOT / "app.py"), "quickstart"),
                    # default ports that the test does not use may be taken on this machine
                    *("--set", f"ops.port={self.ops_port}", "--set", "hub.enabled=false"),
                    *("--dir", str(folder / "run"), *args),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                cwd=folder,
            )

    @property
    def text(self) -> str:
        return self._out.read_text()

    @property
    def port(self) -> int:
        found = re.search(rf"Gateway http://{HOST}:(\d+)", self.text)
        assert found, self.text
        return int(found[1])

    @property
    def key(self) -> str:
        found = re.search(r"API key, .*: (\S+)", self.text)
        assert found, self.text
        return found[1]

    @property
    def demo_port(self) -> int:
        """Return the demo vendor's port, from its command line."""
        lines = [command(pid) for pid in self.members()]
        (line,) = [line for line in lines if "demo" in line]
        return int(line[line.index("--port") + 1])

    def wait_until_ready(self) -> None:
        assert wait_until(lambda: answers(self.ops_port, "/readyz"), READY_S), self.text

    def curls(self) -> dict[str, str]:
        """Return the printed commands unchanged, by their titles."""
        blocks = re.findall(r"^([A-Z][\w -]+):\n(curl .*?)\n\n", self.text, re.M | re.S)
        return dict(blocks)

    def members(self) -> list[int]:
        """Return the living processes of the terminal's session."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                    if int(fields[3]) == self.process.pid and fields[0] != "Z":
                        found.append(int(entry))
        return found

    def press_ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def close(self) -> None:
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(END_S)


def command(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


def answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def paste(line: str, folder: Path, environment=None) -> list[tuple[float, str]]:
    """Run a pasted line in a shell; return (seconds, line) of its output."""
    shell = subprocess.Popen(
        ["sh", "-c", line],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        text=True,
    )
    with shell:
        assert shell.stdout is not None
        printed = [(time.monotonic(), text.rstrip("\n")) for text in shell.stdout]
    assert shell.returncode == 0, printed
    return [(at, text) for at, text in printed if text]


@pytest.fixture
def open_terminal(tmp_path):
    """Return open_terminal(*args), which returns a Terminal with quickstart running in it."""
    opened = []

    def open_one(*args: str) -> Terminal:
        opened.append(Terminal(tmp_path, *args))
        return opened[-1]

    yield open_one
    for terminal in opened:
        terminal.close()


def check_stream(printed, last_line: str) -> None:
    assert re.fullmatch(last_line, printed[-1][1]), printed
    assert len(printed) > 5
    assert printed[-1][0] - printed[0][0] > STREAMED_S, "the answer came all at once"


def test_every_printed_line_and_those_of_the_readme_answer(open_terminal, tmp_path, curl):
    """Pasted, all of them answer; a second quickstart in the same folder is refused."""
    port = free_port()
    terminal = open_terminal("--port", str(port))
    terminal.wait_until_ready()
    assert terminal.port == port
    curls = terminal.curls()
    assert list(curls) == list(LAST_LINES)
    for title, line in curls.items():
        check_stream(paste(line, tmp_path), LAST_LINES[title])
    section = (ROOT / "README.md").read_text().partition("## A first call")[2].partition("\n## ")[0]
    lines = re.findall(r"^    (curl .*?[^\\])$", section, re.M | re.S)
    assert len(lines) == len(LAST_LINES)
    for line, last_line in zip(lines, LAST_LINES.values(), strict=True):
        there = line.replace(f"{HOST}:8000", f"{HOST}:{port}")
        assert there != line
        check_stream(paste(there, tmp_path, {"KEY": terminal.key}), last_line)
    assert "Traceback" not in terminal.text

    second = open_terminal("--port", str(free_port()))
    assert second.process.wait(READY_S) == 1
    last = second.text.rstrip().splitlines()[-1]
    assert last.startswith("error: ") and "journal.dir" in last
    assert answers(port, "/livez")


def test_ctrl_c_ends_all_and_a_second_start_finds_everything(open_terminal, tmp_path, curl):
    first = open_terminal("--port", str(free_port()))
    first.wait_until_ready()
    demo_port, key = first.demo_port, first.key
    assert is_open(demo_port)
    # A running answer is completed.
    slow = first.curls()["Chat completions"].replace("Say hello.", "[[demo ms=60 chunks=20]]")
    shell = subprocess.Popen(["sh", "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        first.press_ctrl_c()
        rest = shell.stdout.read()
    assert rest.rstrip().endswith(b"data: [DONE]")
    assert first.process.wait(END_S) == 0
    assert wait_until(lambda: not first.members(), END_S), "a process outlived Ctrl-C"
    assert not is_open(demo_port) and not is_open(first.port)
    assert "Traceback" not in first.text and "KeyboardInterrupt" not in first.text

    second = open_terminal()
    second.wait_until_ready()
    assert (second.port, second.key) == (first.port, key)
    assert second.demo_port == demo_port
    assert "API key, created now" in first.text
    assert "API key, created earlier" in second.text
    check_stream(paste(second.curls()["Messages"], tmp_path), LAST_LINES["Messages"])

    os.kill(second.process.pid, signal.SIGKILL)
    second.process.wait(END_S)
    assert wait_until(lambda: not second.members(), END_S), "a process outlived the supervisor"
    assert not is_open(demo_port)


@pytest.mark.parametrize("setting", ["server.port", "ops.port"])
def test_a_port_that_is_taken(open_terminal, setting):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        args = ["--port", str(port if setting == "server.port" else free_port())]
        args += ["--set", f"ops.port={port}"] if setting == "ops.port" else []
        terminal = open_terminal(*args)
        assert terminal.process.wait(READY_S) == 1
    last = terminal.text.rstrip().splitlines()[-1]
    assert last.startswith("error: ") and f"{setting} {port} " in last
    remedy = "make run PORT=8080" if setting == "server.port" else f"SLUICE_OPS__PORT={port + 1}"
    assert remedy in last
    assert "curl" not in terminal.text  # nothing to paste when nothing runs
    assert "Traceback" not in terminal.text
    assert not terminal.members()

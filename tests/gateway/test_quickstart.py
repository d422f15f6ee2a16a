"""`quickstart` as a person meets it: type it, paste what it prints, press Ctrl-C."""

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import leash
from tests.support.gateway import HOST, ROOT
from tests.support.ports import free_port

READY_S = 20
END_S = 10
# Between the first and the last piece of an answer; one that is held back has none.
STREAMED_S = 0.1
# how the last line of a whole stream looks, by the title of the family
LAST_LINES = {
    "Chat completions": r"data: \[DONE\]",
    "Responses": r'data: \{"type":"response\.completed",.*\}',
    "Messages": r'data: \{"type":"message_stop"\}',
    "Generate content": r'data: \{.*"finishReason":"STOP".*\}',
}
VENDOR_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")


@pytest.fixture
def curl():
    found = shutil.which("curl")
    if found is None:
        reason = "curl is not installed (apt-get install curl)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return found


class Terminal:
    """A terminal in which quickstart runs: a process group of its own, its output in a file."""

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
                    # the ports that are not asked for may be taken on the tests' machine
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
        """Where the demo vendor listens, by the command line it was started with."""
        lines = [command(pid) for pid in self.members()]
        (line,) = [line for line in lines if "demo" in line]
        return int(line[line.index("--port") + 1])

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while not answers(self.ops_port, "/readyz"):
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.05)

    def curls(self) -> dict[str, str]:
        """The commands that were printed, as they stand there, by their titles."""
        blocks = re.findall(r"^([A-Z][\w -]+):\n(curl .*?)\n\n", self.text, re.M | re.S)
        return dict(blocks)

    def members(self) -> list[int]:
        """Living processes of the terminal's session."""
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


def wait_for(true, what: str, timeout_s: float = END_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def paste(line: str, folder: Path, environment=None) -> list[tuple[float, str]]:
    """Runs a line in a shell as it was pasted; (seconds, line) of what it printed."""
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
    """open_terminal(*args) -> Terminal with quickstart running in it."""
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


def test_every_printed_line_answers_when_it_is_pasted(open_terminal, tmp_path, curl):
    port = free_port()
    terminal = open_terminal("--port", str(port))
    terminal.wait_until_ready()
    assert terminal.port == port
    curls = terminal.curls()
    assert list(curls) == list(LAST_LINES)
    for title, line in curls.items():
        check_stream(paste(line, tmp_path), LAST_LINES[title])
    assert "Traceback" not in terminal.text


def test_the_lines_of_the_readme(open_terminal, tmp_path, curl):
    terminal = open_terminal("--port", str(free_port()))
    terminal.wait_until_ready()
    section = (ROOT / "README.md").read_text().partition("## A first call")[2].partition("\n## ")[0]
    lines = re.findall(r"^    (curl .*?[^\\])$", section, re.M | re.S)
    assert len(lines) == len(LAST_LINES)
    for line, last_line in zip(lines, LAST_LINES.values(), strict=True):
        there = line.replace(f"{HOST}:8000", f"{HOST}:{terminal.port}")
        assert there != line
        check_stream(paste(there, tmp_path, {"KEY": terminal.key}), last_line)


def test_ctrl_c_ends_all_and_a_second_start_finds_everything(open_terminal, tmp_path, curl):
    first = open_terminal("--port", str(free_port()))
    first.wait_until_ready()
    demo_port, key = first.demo_port, first.key
    assert is_open(demo_port)
    first.press_ctrl_c()
    assert first.process.wait(END_S) == 0
    wait_for(lambda: not first.members(), "a process outlived Ctrl-C")
    assert not is_open(demo_port)
    assert not is_open(first.port)
    assert "Traceback" not in first.text
    assert "KeyboardInterrupt" not in first.text

    second = open_terminal()
    second.wait_until_ready()
    assert (second.port, second.key) == (first.port, key)
    assert second.demo_port == demo_port
    assert "API key, created now" in first.text
    assert "API key, created earlier" in second.text
    check_stream(paste(second.curls()["Messages"], tmp_path), LAST_LINES["Messages"])


def test_ctrl_c_lets_an_answer_come_to_its_end(open_terminal, tmp_path, curl):
    terminal = open_terminal("--port", str(free_port()))
    terminal.wait_until_ready()
    slow = terminal.curls()["Chat completions"].replace("Say hello.", "[[demo ms=60 chunks=20]]")
    shell = subprocess.Popen(["sh", "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        terminal.press_ctrl_c()
        rest = shell.stdout.read()
    assert rest.rstrip().endswith(b"data: [DONE]")
    assert terminal.process.wait(END_S) == 0


def test_nothing_outlives_a_killed_gateway(open_terminal):
    terminal = open_terminal("--port", str(free_port()))
    terminal.wait_until_ready()
    demo_port = terminal.demo_port
    os.kill(terminal.process.pid, signal.SIGKILL)
    terminal.process.wait(END_S)
    wait_for(lambda: not terminal.members(), "a process outlived the supervisor")
    assert not is_open(demo_port)


def test_a_port_that_is_taken(open_terminal):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        terminal = open_terminal("--port", str(port))
        assert terminal.process.wait(READY_S) == 1
    last = terminal.text.rstrip().splitlines()[-1]
    assert last.startswith("error: ")
    assert f"server.port {port} " in last
    assert "make run PORT=8080" in last
    assert "curl" not in terminal.text  # nothing to paste when nothing runs
    assert "Traceback" not in terminal.text
    assert not terminal.members()


def test_another_port_that_is_taken(open_terminal):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        terminal = open_terminal("--port", str(free_port()), "--set", f"ops.port={port}")
        assert terminal.process.wait(READY_S) == 1
    last = terminal.text.rstrip().splitlines()[-1]
    assert f"ops.port {port} " in last and f"SLUICE_OPS__PORT={port + 1} make run" in last
    assert "curl" not in terminal.text


def test_a_second_one_in_the_same_folder(open_terminal):
    first = open_terminal("--port", str(free_port()))
    first.wait_until_ready()
    second = open_terminal("--port", str(free_port()))
    assert second.process.wait(READY_S) == 1
    last = second.text.rstrip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "journal.dir" in last
    assert answers(first.port, "/livez")

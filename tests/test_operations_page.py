"""Every block of docs/operations.md runs, in order, as an operator pastes it.

The machine is a folder: the page's /opt, /var and /etc are below it, ports are free ones, the
vendor is scripted, and `systemctl` ends and starts a real gateway. A comment before a block says
why it is not run (`<!-- example: needs systemd -->`); the names in such a block are compared with
what exists. The word of a fence marks other languages than shell: sql, ini, toml, yaml.
"""

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conf.configuration import load
from conf.settings import SETTINGS, Settings
from store.db.database import discard, execute, open_database
from store.db.nodes import NODE_ALIVE_MS
from tests.support import leash
from tests.support.client import exchange, wait_until
from tests.support.dialects import CHAT, ask, credentials, path_of
from tests.support.ports import HOST, free_port
from tests.support.upstream import ScriptedUpstream

ROOT = Path(__file__).resolve().parents[1]
SYSTEMD = ROOT / "conf/systemd"
EXAMPLE = re.compile(r"<!-- example: (needs .+) -->")
OTHER_BEGINNINGS = {"MariaDB"}  # start on a machine with a freshly installed gateway
PORTS = ("8000", "8001", "9000", "8010", "8011", "9010", "8100", "8101", "9100")
MODEL = "gpt-4.1"
PASSWORD = "p4ssword"
PATIENCE_S = 60
ENDLESS_S = "3"  # a command without an end is stopped after this
OF_A_SHELL = {"PATH", "PWD", "OLDPWD", "SHLVL", "_"}
SERVE = "/opt/sluice/sluice serve --config /var/lib/sluice/gateway.toml"


class Block(NamedTuple):
    """A block of the page: its section, the paragraph before it, `sh` or the word of its fence,
    the reason why it is not run ("" if it is), its text."""

    section: str
    before: str
    kind: str
    example: str
    text: str

    def lines(self) -> list[str]:
        """Return a shell block's commands, continued lines joined."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        return [line for line in joined.splitlines() if line and not line.startswith("#")]


def parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of each heading, paragraph ("") and block of a page."""
    kind, lines = "", []
    for line in [*text.splitlines(), ""]:
        if kind not in ("", "sh"):  # within a fence
            if line != "```":
                lines.append(line)
                continue
        elif line.strip() and not line.startswith("```"):
            kind = kind or ("sh" if not lines and line.startswith("    ") else "")
            lines.append(line)
            continue
        if lines:
            yield kind, textwrap.dedent("\n".join(lines))
        kind, lines = line[3:] if line.startswith("```") else "", []


def blocks() -> list[Block]:
    section, before, example, found = "", "", "", []
    for kind, text in parts((ROOT / "docs/operations.md").read_text()):
        if kind:
            found.append(Block(section, before, kind, example, text))
            example = ""
        elif text.startswith("## "):
            section, before = text.removeprefix("## "), ""
        elif mark := EXAMPLE.fullmatch(text.strip()):
            example = mark[1]
        else:
            assert not example, f"{section}: a mark of an example without a block"
            before = " ".join(text.split())
    return found


class Machine:
    """A folder that represents a machine on which the gateway is installed.

    `texts`: what a reader replaces a pattern of the page with.
    """

    def __init__(self, folder: Path, texts: dict[str, Callable[[], str]]) -> None:
        self.folder = folder
        self.state = folder / "var/lib/sluice"
        self.ports = {port: str(free_port()) for port in PORTS}
        self.texts = {
            **texts,
            **{rf"(?<=[:=]){port}\b": lambda own=own: own for port, own in self.ports.items()},
            r"(?<![\w.~}])(?=/(opt|var|etc)/)": lambda: str(folder),
        }
        self.environ: dict[str, str] = {}
        self.here = str(folder / "opt/sluice")
        self.log = folder / "serve.log"
        self.service: subprocess.Popen[bytes] | None = None
        # Gateways beside the service, until the section ends or the page says Ctrl-C.
        self.trials: list[subprocess.Popen[bytes]] = []
        self.shown = ""
        for name in ("opt/sluice", "var/lib", "var/log/sluice", "etc/logrotate.d"):
            (folder / name).mkdir(parents=True)
        program = folder / "opt/sluice/sluice"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "app.py"} "$@"\n')
        program.chmod(0o755)
        (folder / "opt/sluice/conf").symlink_to(ROOT / "conf")
        settings = zip(("server", "hub", "ops"), PORTS, strict=False)
        options = " ".join(f"--set {name}.port={port}" for name, port in settings)
        self.run(f"./sluice init /var/lib/sluice {options}", as_root=True)

    def fill(self, text: str) -> str:
        """Return a text of the page as a reader types it on this machine."""
        for pattern, value in self.texts.items():
            if re.search(pattern, text):
                own = value()
                text = re.sub(pattern, lambda _, own=own: own, text)
        return text

    def command(self, argv: list[str]) -> "subprocess.CompletedProcess[str]":
        output = {"capture_output": True, "text": True, "timeout": PATIENCE_S}
        return subprocess.run(argv, check=False, **self.options(), **output)

    def options(self) -> dict[str, Any]:
        environ = {"PATH": os.environ["PATH"], **self.environ}
        return {"cwd": self.here, "env": environ, "stdin": subprocess.DEVNULL}

    def run(self, line: str, as_root: bool) -> None:
        """Run a line of a shell, whose folder and variables are kept for the next one."""
        before, kept = self.beyond(), self.folder / "shell"
        keep = f"env -0 >{kept} && pwd >>{kept}"
        done = self.command(["bash", "-ec", f"set -o pipefail\n{self.fill(line)}\n{keep}"])
        assert done.returncode == 0, f"{self.end_of_log()}\n{line}\n{done.stdout}{done.stderr}"
        assert as_root or self.beyond() == before, f"the user sluice may not do it: {line}"
        self.shown += done.stdout
        *variables, here = kept.read_text().split("\0")
        self.here = here.strip()
        pairs = (variable.partition("=")[::2] for variable in variables)
        self.environ = {name: value for name, value in pairs if name not in OF_A_SHELL}

    def beyond(self) -> set[Path]:
        """Return the folders and files that the user sluice may not write to."""
        return {
            path
            for top in ("opt", "opt/sluice", "etc", "var", "var/lib")
            for path in (self.folder / top).iterdir()
        }

    def become(self, line: str) -> None:
        """Continue with the variables of a line that opens a shell."""
        words = [word.partition("=") for word in shlex.split(self.fill(line))]
        self.environ |= {name: value for name, equals, value in words if equals}

    def serve(self, line: str) -> "subprocess.Popen[bytes]":
        """Start a gateway and wait until it takes calls."""
        words = shlex.split(self.fill(line))
        port = dict(word.split("=", 1) for word in words if "=" in word).get("ops.port")
        with self.log.open("ab") as log:
            process = leash.Popen(words, stdout=log, stderr=log, **self.options())
        ops_port = int(port or self.ports["9000"])
        assert wait_until(lambda: ready(ops_port) or process.poll() is not None, PATIENCE_S)
        assert process.poll() is None, f"{line}\n{self.end_of_log()}"
        return process

    def end_of_log(self) -> str:
        return self.log.read_text()[-3000:] if self.log.exists() else ""

    def systemctl(self, verb: str) -> None:
        """Do what systemd does with the gateway's unit."""
        assert verb in ("start", "stop", "restart", "reload"), verb
        if verb == "reload":
            before = self.workers()
            self.service.send_signal(signal.SIGHUP)
            assert wait_until(lambda: self.workers() - before, PATIENCE_S), self.end_of_log()
        if verb in ("stop", "restart"):
            self.end(self.service)
        if verb in ("start", "restart"):
            self.service = self.serve(SERVE)

    def workers(self) -> set[int]:
        """Return the processes that take calls."""
        status = exchange(int(self.ports["9000"]), "GET", "/status", {"Host": HOST}).json
        return {worker["pid"] for worker in status["workers"] if not worker["why"]}

    def settings(self) -> Settings:
        return load(self.state / "gateway.toml", (), {}).settings

    def let_a_minute_pass(self) -> None:
        """Let a minute pass for the nodes, so that one that has ended no longer counts as
        running."""
        db = open_database(self.settings().store.url)
        execute(db, f'UPDATE "nodes" SET "seen_ms" = "seen_ms" - {NODE_ALIVE_MS}')
        discard(db)

    def end(self, process: "subprocess.Popen[bytes]") -> None:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, self.end_of_log()

    def end_trials(self) -> None:
        while self.trials:
            self.end(self.trials.pop())

    def close(self) -> None:
        for process in filter(None, [self.service, *self.trials]):
            process.kill()
            process.wait(PATIENCE_S)


# What holds after a section, in addition to the success of all its commands.
OUTCOMES: dict[str, Callable[[Machine], bool]] = {
    "MariaDB": lambda machine: machine.settings().store.url.startswith("mysql:"),
    "Change settings, restart, upgrade": lambda machine: (
        machine.settings().server.drain_timeout_s == 120
    ),
    "Restore": lambda machine: (machine.state.parent / "sluice-old/sluice.db").exists(),
    "Move from SQLite to MariaDB": lambda machine: machine.settings().store.url.startswith(
        "mysql:"
    ),
    "Metrics, logs, traces": lambda machine: wait_until(
        (machine.folder / "var/log/sluice/gateway.log").exists, PATIENCE_S
    ),
}


def ready(port: int) -> bool:
    try:
        return exchange(port, "GET", "/readyz").status == 200
    except OSError:
        return False


def run_shell(server, machine: Machine, block: Block) -> None:
    as_root = "as root" in block.before
    for line in block.lines():
        words = shlex.split(line, comments=True)
        if words[0] == "systemctl":
            assert words[2:] == ["sluice"], line
            machine.systemctl(words[1])
        elif words[0] == "runuser":
            machine.become(line)
        elif words[:2] == ["./sluice", "serve"]:
            machine.trials.append(machine.serve(line))
        elif "-f" in words:
            done = machine.command(["timeout", "-s", "INT", ENDLESS_S, *words])
            assert done.returncode == 124, f"{line}: {done.stdout}{done.stderr}"
        else:
            machine.run(line, as_root)


def run_sql(server, machine: Machine, block: Block) -> None:
    text = machine.fill(re.sub(r"#.*", "", block.text))
    for name in re.findall(r"CREATE DATABASE (\w+)", text):
        server.run(f"DROP DATABASE IF EXISTS {name}")
    for statement in filter(str.strip, text.split(";")):
        server.run(statement)


def run_toml(server, machine: Machine, block: Block) -> None:
    path = machine.folder / "block.toml"
    path.write_text(machine.fill(block.text))
    load(path, (), {})


def run_ini(server, machine: Machine, block: Block) -> None:
    """Check that the server knows each option and accepts its value."""
    name, *lines = block.text.splitlines()
    assert name == "[mariadbd]"
    options = ["--" + line.replace(" = ", "=") for line in lines]
    done = machine.command([server.program, "--no-defaults", *options, "--verbose", "--help"])
    assert done.returncode == 0 and "adjusted" not in done.stderr, done.stderr
    for option in options:
        variable = option[2:].partition("=")[0].replace("_", "-")
        assert re.search(rf"^{variable} ", done.stdout, re.M), option


def run_yaml(server, machine: Machine, block: Block) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        return  # as in tests/conf/test_alerts.py; `make test` installs it
    (machine.folder / "etc/prometheus").mkdir()
    (machine.folder / "etc/prometheus/sluice-ops-token").touch()
    path = machine.folder / "block.yaml"
    path.write_text(machine.fill(block.text))
    done = machine.command([promtool, "check", "config", str(path)])
    assert done.returncode == 0, done.stdout + done.stderr


RUN = {"sh": run_shell, "sql": run_sql, "toml": run_toml, "ini": run_ini, "yaml": run_yaml}


def a_call(machine: Machine, key: str) -> None:
    """Make a call with the key, once the gateway knows it."""
    headers, body = credentials(CHAT, key), ask(CHAT, MODEL)
    port = int(machine.ports["8000"])
    path = path_of(CHAT, MODEL)
    assert wait_until(lambda: exchange(port, "POST", path, headers, body).status == 200, PATIENCE_S)


def document(vendor: ScriptedUpstream) -> str:
    """Return the text that the README saves as setup.toml, with this vendor."""
    readme = (ROOT / "README.md").read_text().partition("## A gateway of your own")[2]
    text = readme.partition("```toml\n")[2].partition("```")[0]
    return text.replace("https://api.openai.com", vendor.url)


def test_every_block_works_in_the_order_of_the_page(tmp_path, mariadb):
    machines = []

    def codes() -> list[dict[str, str]]:
        return json.loads((machines[0].state / "codes.json").read_text())

    def key() -> str:
        return re.findall(r"sk-slc-\w+", machines[0].shown)[0]

    def backup() -> str:
        (path,) = machines[0].state.glob("sluice-*.tar")
        return path.name

    def call_id() -> str:
        return json.loads((machines[0].state / "today.ndjson").read_text().splitlines()[0])["id"]

    texts = {
        r"\bKEY\b": key,
        r"\bCODE\b": lambda: codes()[0]["code"],
        r"\bCODE_ID\b": lambda: codes()[1]["id"],
        r"\bCALL_ID\b": call_id,
        r"\bPASSWORD\b": lambda: PASSWORD,
        r"sluice-2026-11-24\.tar": backup,
        r"\bdb\.internal:3306": lambda: f"{HOST}:{mariadb.port}",
        r"10\.0\.0\.%": lambda: "127.0.0.%",
        r" -o sluice -g sluice\b": lambda: "",  # the user of the test
        r"https://gateway\.example": lambda: f"http://{HOST}:{machines[0].ports['8000']}",
    }
    page = blocks()
    (login,) = [line for block in page for line in block.lines() if line.endswith(" bash")]
    with ScriptedUpstream() as vendor:
        try:
            main = Machine(tmp_path / "main", texts)
            machines.append(main)
            (main.state / "setup.toml").write_text(document(vendor))
            main.systemctl("start")
            for section, of_section in itertools.groupby(page, lambda block: block.section):
                machine = main
                if section in OTHER_BEGINNINGS:
                    machine = Machine(tmp_path / section, texts)
                    machines.append(machine)
                    machine.become(login)
                for block in of_section:
                    if "Ctrl-C" in block.before:
                        machine.end_trials()
                    if not block.example:
                        RUN[block.kind](mariadb, machine, block)
                    if "apply ~/setup.toml" in block.text:
                        (main.state / "key.txt").write_text(key())
                        a_call(main, key())
                machine.end_trials()
                machine.let_a_minute_pass()
                if section in OUTCOMES:
                    assert OUTCOMES[section](machine), section
        finally:
            for machine in machines:
                machine.close()


EXAMPLES = [block for block in blocks() if block.example]


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: block.section)
def test_an_example_names_what_is_there(block):
    """tests/test_docs_commands.py tests the options of commands."""
    text = "\n".join(block.lines())
    for name in re.findall(r"(?:/opt/sluice|\$new)/([\w./@*-]*\w)", text):
        in_place = name.startswith((".venv/", "bin/")) or any(ROOT.glob(name))
        assert in_place, f"there is no {name}"
    for names in re.findall(r"^(?:.*&& )?cp -r (.*) \S+$", text, re.M):
        for name in names.split():
            assert any(ROOT.glob(name)), f"there is no {name}"
    for line in re.findall(r"^systemctl (.*)$", text, re.M):
        for unit in re.findall(r"sluice\S*", line):
            name = re.sub(r"@.+", "@", unit)
            assert (SYSTEMD / (name if "." in name else f"{name}.service")).exists(), unit
    for section, key in re.findall(r"\bSLUICE_([A-Z]+)__([A-Z_]+)", text):
        assert f"{section}.{key}".lower() in SETTINGS
    for name in re.findall(r"--set (\S+)=", text):
        assert name in SETTINGS
    units = "\n".join(path.read_text() for path in SYSTEMD.iterdir())
    for folder in re.findall(r"(/var/(?:lib|log|backups)/[\w-]+)", text):
        assert folder in units, folder

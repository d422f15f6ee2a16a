"""The commands of README.md and docs/ work when pasted: names, options, variables, files."""

import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import app
from commands.nouns import quickstart
from commands.nouns.init import prepare
from conf.configuration import load

ROOT = Path(__file__).resolve().parents[1]
MADE = {"cli.md", "errors.md", "settings.md"}  # without blocks of commands
PAGES = sorted(path for path in (ROOT / "docs").glob("*.md") if path.name not in MADE)
GIVEN = {"HOME", "PWD", "PATH", "USER"}  # set by the shell
# Words that a reader replaces: CALL_ID, NODE.
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*[A-Z]", re.ASCII)
ENDLESS = ("serve", "quickstart", "tail -f", "channel test")
SYSTEM = ("/etc", "/opt", "/usr", "/var")
every_page = pytest.mark.parametrize(
    "page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name
)


class Line(NamedTuple):
    """A command of a page: its text, and the whole page before it."""

    text: str
    before: str


def blocks(page: Path) -> Iterator[Line]:
    """Yield the commands in blocks of code, continued lines joined, in order."""
    lines = page.read_text().split("\n")
    fence = ""
    for number, line in enumerate(lines):
        if line.startswith("```"):
            fence = "" if fence else line.strip("`") or "text"
            continue
        code = line[4:] if line.startswith("    ") and not fence else line if fence == "sh" else ""
        if not code or lines[number - 1].endswith("\\"):
            continue
        last = number
        while code.endswith("\\"):
            last += 1
            code = code[:-1] + lines[last].strip()
        if words(code) and is_command(code):
            yield Line(code.strip(), "\n".join(lines[:number]))


def is_command(line: str) -> bool:
    first = words(line)[0]
    known = ("make", "curl", "export", "systemctl", "apt-get", "cp", "install", "runuser")
    return first in known or first.endswith("sluice") or bool(re.match(r"[A-Z_]+=", line))


def words(line: str) -> list[str]:
    """Split as a shell does, without comments; pipes and > are words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # prose or TOML with an apostrophe
        return []


def sluice_commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each `sluice` in a line."""
    found = words(text)
    while found:
        part = []
        while found and found[0] not in ("|", "&&", ";", ">", ">>", "<"):
            part.append(found.pop(0))
        found = found[1:]
        for place, word in enumerate(part):
            if word in ("./sluice", "/opt/sluice/sluice", "$new/sluice"):
                yield part[place + 1 :]


def parse(args: list[str]) -> None:
    """Parse as the command line does, without doing anything; fail as it would."""
    name, *rest = args
    assert name in app.COMMANDS, f"no command {name}"
    command: click.Command = importlib.import_module(app.module_of(name)).command
    while isinstance(command, click.Group):
        verb = command.commands.get(rest[0])
        assert verb is not None, f"no command {name} {rest[0]}"
        command, rest = verb, rest[1:]
    if rest != ["--help"]:
        command.make_context(name, list(rest))


@every_page
def test_every_command_is_taken(page):
    inline = re.findall(r"`(\./sluice [^`\[|…]+)`", page.read_text())
    for text in [*inline, *(line.text for line in blocks(page))]:
        for args in sluice_commands(text):
            try:
                parse(args)
            except click.UsageError as error:
                pytest.fail(f"{text}: {error.format_message()}")


@every_page
def test_commands_have_no_gap_and_need_nothing_that_comes_later(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for line in blocks(page):
        code = line.text.partition(" # ")[0]
        assert "…" not in code and "..." not in code, line.text
        for name in set(re.findall(r"\$\{?([A-Z_a-z]+)", line.text)) - GIVEN:
            assert re.search(rf"^    (export )?{name}=", line.before, re.M), line.text
        for args in sluice_commands(line.text):
            if args[0] == "apply" and args[1] != "-":
                assert f"`{args[1]}`" in line.before, f"{args[1]} comes from nowhere"
        if words(line.text)[0] == "make":
            text = re.sub(r" -C \S+", "", line.text)
            used = [word for word in words(text)[1:] if "=" not in word]
            assert used and set(used) <= targets, line.text


def shell(script: str, folder: Path, environ: dict[str, str]) -> None:
    """Run a script in a folder with the surface of a checkout: only `./sluice` is there."""
    link = folder / "sluice"
    if not link.exists():
        link.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "app.py"} "$@"\n')
        link.chmod(0o755)
    environ = {"PATH": os.environ["PATH"], **environ}
    options = {"cwd": folder, "env": environ, "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run(["sh", "-ec", script], check=False, **options)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def runnable(lines: list[Line]) -> str:
    """Return the lines that end by themselves, have no placeholders, and stay within the test's
    folders."""
    return "\n".join(
        line.text
        for line in lines
        if not any(word in line.text for word in (*ENDLESS, *SYSTEM))
        and not any(PLACEHOLDER.fullmatch(word) for word in words(line.text))
    )


def test_a_gateway_of_your_own_as_the_readme_makes_it(tmp_path):
    readme = (ROOT / "README.md").read_text()
    section = readme.partition("## A gateway of your own")[2].partition("\n## ")[0]
    (document,) = re.findall(r"^```toml\n(.*?)^```", section, re.M | re.S)
    (tmp_path / "setup.toml").write_text(document)
    lines = [line for line in blocks(ROOT / "README.md") if line.text in section]
    shell(runnable(lines), tmp_path, {"HOME": str(tmp_path)})
    assert (tmp_path / "sluice-gateway" / "gateway.toml").is_file()


def test_the_commands_about_money_after_make_run(tmp_path):
    folder = tmp_path / "run"
    prepare(folder, ())
    quickstart.fill_store(load(folder / "gateway.toml", (), {}), folder)
    script = runnable(list(blocks(ROOT / "docs/money.md")))
    assert script.count("./sluice") > 10
    shell(script, tmp_path, {})

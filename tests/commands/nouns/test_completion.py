"""Completion: the words offered to a shell, and the scripts, run by the installed shells."""

import os
import shutil
import subprocess
import sys

import pytest

import app
from tests.support.commands import ROOT


def told(monkeypatch, capsys, line, shell="zsh"):
    """Return the words that complete a line, whose last word is incomplete."""
    words = line.split(" ")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1) if shell != "fish" else words[-1])
    monkeypatch.setenv(app.COMPLETE_VARIABLE, f"{shell}_complete")
    assert app.main([]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [one for one in out.splitlines() if one]
    return lines[1::3] if shell == "zsh" else [one.partition(",")[2] for one in lines]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sluice ke", ["key"]),
        ("sluice doc", ["doctor"]),
        ("sluice key ro", ["rotate"]),
        ("sluice key rotate --ov", ["--overlap"]),
        ("sluice channel te", ["test"]),
        ("sluice channel test --st", ["--stream"]),
        ("sluice secrets rotate c", ["cipher", "cookie"]),
        ("sluice usage export --format n", ["ndjson"]),
        ("sluice status --set", ["--settings"]),
        ("sluice serve --se", ["--set"]),
        ("sluice nothing x", []),
        ("sluice key nothing x", []),
        ("sluice worker --x", []),
    ],
)
def test_words(monkeypatch, capsys, line, words):
    for shell in ("zsh", "bash", "fish"):
        shown = told(monkeypatch, capsys, line, shell)
        assert [word.partition("\t")[0] for word in shown] == words


def test_all_commands_without_importing_them(monkeypatch, capsys):
    assert told(monkeypatch, capsys, "sluice ") == list(app.COMMANDS)
    code = (
        "import sys, app; app.main([]);"
        "sys.exit(bool({'tornado', 'peewee', 'handlers', 'store'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True)
    assert done.returncode == 0


def test_bash_completes(tmp_path):
    program = tmp_path / "sluice"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT}/app.py "$@"\n')
    program.chmod(0o755)
    script = (
        f'eval "$({program} completion bash)"; complete -p sluice;'
        f" COMP_WORDS=({program} secrets ro); COMP_CWORD=2; _sluice_completion {program};"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    done = subprocess.run([bash, "-c", script], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["complete -o nosort -F _sluice_completion sluice", "rotate"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_sound(shell, capsys):
    assert app.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_SLUICE_COMPLETE={shell}_complete" in script
    # the command that was typed is asked, in PATH or not
    asked = {"bash": "$1", "zsh": "${~words[1]}", "fish": "(commandline -opc)[1]"}[shell]
    assert f"{asked}" in script and "$+commands" not in script
    if program := shutil.which(shell):
        done = subprocess.run([program, "-n"], input=script, text=True, check=False, env=os.environ)
        assert done.returncode == 0


def test_another_shell_is_wrong_usage(capsys):
    assert app.main(["completion", "csh"]) == 2

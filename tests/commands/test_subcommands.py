"""Nouns with verbs."""

import sys

import click
import pytest

from commands import output
from commands.output import config_option, json_option
from commands.subcommands import LazyVerb, Noun


@pytest.fixture
def noun():
    command = Noun("thing", no_args_is_help=True)
    command.add_command(LazyVerb("heavy", "commands.nouns.version", "Do something heavy."))

    @command.command("list")
    @config_option
    @json_option
    def list_things(config, as_json):
        """List things."""
        click.echo(f"{config} {as_json}")
        return 7

    return command


@pytest.mark.parametrize(
    "args",
    [
        ("list", "--json", "--config", "f"),
        ("--config", "f", "--json", "list"),
        ("--config=f", "list", "--json"),
    ],
)
def test_options_stand_before_and_behind_the_verb(noun, args, capsys):
    assert output.run(noun, args, "thing") == 7
    assert capsys.readouterr().out == "f True\n"


def test_a_misspelt_verb_is_answered_with_the_nearest(noun, capsys):
    assert output.run(noun, ["lits"], "thing") == 2
    assert "no command 'lits'; did you mean 'list'?" in capsys.readouterr().err
    assert output.run(noun, ["qqq"], "thing") == 2
    assert "did you mean" not in capsys.readouterr().err
    assert output.run(noun, ["--nothing", "list"], "thing") == 2


def test_help_names_a_lazy_verb_without_its_module(noun, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "commands.nouns.version", raising=False)
    assert output.run(noun, ["--help"], "thing") == 0
    text = capsys.readouterr().out
    assert "List things." in text and "Do something heavy." in text
    assert "commands.nouns.version" not in sys.modules
    assert output.run(noun, ["heavy"], "thing") == 0
    assert capsys.readouterr().out.startswith("sluice ")


def test_the_help_of_a_lazy_verb_is_that_of_its_command(noun, capsys):
    assert output.run(noun, ["heavy", "--help"], "thing") == 0
    text = capsys.readouterr().out
    assert text.startswith("Usage: thing heavy") and "--json" in text

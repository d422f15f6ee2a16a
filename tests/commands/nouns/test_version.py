"""`version --json`."""

import json

from click.testing import CliRunner

from commands.nouns.version import VERSION, command, revision


def test_json():
    got = CliRunner().invoke(command, ["--json"])
    assert json.loads(got.stdout)["version"] == VERSION
    assert json.loads(got.stdout)["revision"] == revision()

"""`version --json`."""

import json

from click.testing import CliRunner

from commands.nouns.version import VERSION, command


def test_json():
    got = CliRunner().invoke(command, ["--json"])
    assert json.loads(got.stdout)["version"] == VERSION

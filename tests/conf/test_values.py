"""TOML texts of values are read back as they were."""

import tomllib

import pytest

from conf.values import toml


@pytest.mark.parametrize(
    "value", [True, False, 0, 33554432, "", 'a"b\\c\n\x7f\x01é/', ["a", "b"], []]
)
def test_toml_round_trip(value):
    assert tomllib.loads("v = " + toml(value))["v"] == value


def test_tuples_are_lists():
    assert toml(("10.0.0.0/8",)) == '["10.0.0.0/8"]'

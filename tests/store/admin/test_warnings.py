"""What `apply` warns of."""

import json

import pytest

from store.admin.document import parse
from store.admin.plan import warnings_of


@pytest.mark.parametrize(
    ("shared", "warned"), [(["*"], True), (["vs_*"], False), ([], False), (["vs_*", "*"], True)]
)
def test_a_channel_that_shares_everything(tmp_path, shared, warned):
    entry = {"name": "main", "shared_ids": shared}
    document = parse(json.dumps({"channel": [entry]}), {}, tmp_path)
    fields = {"groups": ["all"], "models": {"m": "m"}, "keys": ["k"], "shared_ids": shared}
    found = warnings_of({("channel", ("main",)): fields}, document)
    assert [("shared_ids" in one) for one in found] == [True] * warned

"""Names that filters of usage may say, on both databases."""

import pytest

from store.admin.listing import key_id_of, require_name
from store.values.errors import NotFound
from tests.support.usage_records import NOW_MS, record, store


def test_names_that_only_the_sums_remember_exist(database):
    for kind in ("user", "group", "channel"):
        with pytest.raises(NotFound, match=f'no {kind} "g"'):
            require_name(database, kind, "g")
    with pytest.raises(NotFound):
        key_id_of(database, "k")
    store(database, [record(1, NOW_MS, channel="main")])
    require_name(database, "user", "alice")
    require_name(database, "channel", "main")
    assert key_id_of(database, "k") == "k"

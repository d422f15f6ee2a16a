"""Notices: shown from `since` to `until`, the newest first, audited."""

import pytest

from store.db import audit
from store.hub import notices
from store.values.errors import NotFound, Refused

pytestmark = pytest.mark.databases("sqlite")


def test_at_most_so_many_are_told_at_a_time(database):
    for number in range(notices.MAX_SHOWN + 2):
        notices.create(database, {"text": f"notice {number}"}, "boss")
    assert len(notices.current(database)) == notices.MAX_SHOWN
    assert len(notices.listed(database)) == notices.MAX_SHOWN + 2


def test_making_and_removing_are_audited_and_an_unknown_one_is_not_found(database):
    made = notices.create(database, {"text": "x", "level": "warning"}, "boss")
    notices.remove(database, made.id, "eve")
    acts = {(act["actor"], act["action"], act["name"]) for act in audit.entries(database, 5)}
    assert acts == {("boss", "create", made.id), ("eve", "remove", made.id)}
    with pytest.raises(NotFound):
        notices.remove(database, made.id, "eve")


def test_a_refusal_names_each_field(database):
    with pytest.raises(Refused) as refused:
        notices.create(database, {"text": "", "level": "loud", "until": "soon"}, "boss")
    assert refused.value.fields == ["text", "level", "until"]
    assert notices.listed(database) == []

"""Why a model cannot be called in a group: other groups, names, what is down or switched off."""

import pytest

from operations import availability
from operations.availability import Availability
from store.catalog.catalog import Group
from store.channels.offers import Offering
from store.channels.serving import ServingChannel
from store.channels.status import AVAILABLE, DISABLED, DOWN, Status


@pytest.fixture
def able():
    """Return an offering: default offers all models, coding some at half the price; one model is
    down in both."""
    models = {"gpt-4.1": "gpt-4.1-2025-04-14", "gpt-5": "gpt-5"}
    everywhere = frozenset({"default", "coding"})
    served = ("channel_id", "main", everywhere, models, "responses", True, True, False, ())
    others = ("other_id", "foreign", frozenset({"others"}), {"secret": "up-secret"}, *served[4:])
    well = (("default", "gpt-4.1"), ("default", "gpt-5"), ("coding", "gpt-4.1"), ("batch", "gpt-5"))
    statuses = [
        *(Status(*pair, AVAILABLE) for pair in well),
        Status("default", "kimi", DOWN, since_ms=5),
        Status("default", "old", DISABLED),
        Status("coding", "kimi", DOWN, since_ms=7, retry_ms=9),
    ]
    multipliers = {"default": 1_000_000, "coding": 800_000, "batch": 500_000}
    entries = frozenset({"chat_completions"})
    groups = {name: Group(name, ppm, None, entries, False) for name, ppm in multipliers.items()}
    channels = [ServingChannel(*served), ServingChannel(*others)]
    return Availability(Offering(0, groups, {}, channels, statuses, {}))


@pytest.mark.parametrize(
    ("group_name", "model", "code", "nearest", "elsewhere"),
    [
        # the cheapest first
        ("coding", "gpt-5", availability.OTHER_GROUP, None, ["batch", "default"]),
        ("default", "gpt-4.1-2025-04-14", availability.UPSTREAM_NAME, ["gpt-4.1"], []),
        ("default", "up-secret", availability.UNKNOWN, [], []),  # a model of other users' groups
        ("default", "gpt-4.11", availability.UNKNOWN, ["gpt-4.1", "gpt-5"], []),
        ("default", "something else", availability.UNKNOWN, [], []),
        ("coding", "kimi", availability.IS_DOWN, [], []),
        ("default", "old", availability.SWITCHED_OFF, [], []),
        ("default", "gpt-5", availability.CALLABLE, [], ["batch"]),
    ],
)
def test_why_a_model_cannot_be_called(able, group_name, model, code, nearest, elsewhere):
    why = able.look_up(group_name, model)
    assert (why.code, list(why.elsewhere)) == (code, elsewhere)
    assert nearest is None or list(why.nearest) == nearest
    if code == availability.IS_DOWN:
        assert (why.status.since_ms, why.status.retry_ms) == (7, 9)

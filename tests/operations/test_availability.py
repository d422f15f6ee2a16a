"""Why a model cannot be called in a group: other groups, names, what is down or switched off."""

import pytest

from operations import availability
from operations.availability import Availability
from store.channels.offers import Offering
from store.channels.serving import ServingChannel
from store.channels.status import AVAILABLE, DISABLED, DOWN, Status
from tests.support.groups import group


def status(name, model, state=AVAILABLE, **fields):
    return Status(name, model, state, **fields)


@pytest.fixture
def able():
    """default offers all, coding some at half the price; one model is down in both."""
    models = {"gpt-4.1": "gpt-4.1-2025-04-14", "gpt-5": "gpt-5"}
    everywhere = frozenset({"default", "coding"})
    served = ("channel_id", "main", everywhere, models, "responses", True, True, False, ())
    others = ("other_id", "foreign", frozenset({"others"}), {"secret": "up-secret"}, *served[4:])
    statuses = [
        status("default", "gpt-4.1"),
        status("default", "gpt-5"),
        status("default", "kimi", DOWN, since_ms=5),
        status("default", "old", DISABLED),
        status("coding", "gpt-4.1"),
        status("coding", "kimi", DOWN, since_ms=7, retry_ms=9),
        status("batch", "gpt-5"),
    ]
    groups = {
        "default": group("default", 1_000_000),
        "coding": group("coding", 800_000),
        "batch": group("batch", 500_000),
    }
    channels = [ServingChannel(*served), ServingChannel(*others)]
    return Availability(Offering(0, groups, {}, channels, statuses, {}))


def test_another_group_offers_it_the_cheapest_first(able):
    why = able.look_up("coding", "gpt-5")
    assert (why.code, why.elsewhere) == (availability.OTHER_GROUP, ["batch", "default"])


def test_an_upstream_name_is_told_its_public_one(able):
    why = able.look_up("default", "gpt-4.1-2025-04-14")
    assert (why.code, why.nearest) == (availability.UPSTREAM_NAME, ["gpt-4.1"])


def test_upstream_names_of_groups_of_others_stay_unknown(able):
    assert able.look_up("default", "up-secret").code == availability.UNKNOWN


def test_an_unknown_name_is_told_the_nearest(able):
    why = able.look_up("default", "gpt-4.11")
    assert why.code == availability.UNKNOWN and why.nearest[0] == "gpt-4.1"
    assert able.look_up("default", "something else").nearest == []


def test_what_is_down_has_its_status_and_nowhere_to_go(able):
    why = able.look_up("coding", "kimi")
    assert (why.code, why.elsewhere) == (availability.IS_DOWN, [])
    assert (why.status.since_ms, why.status.retry_ms) == (7, 9)


def test_what_is_switched_off_and_what_can_be_called(able):
    assert able.look_up("default", "old").code == availability.SWITCHED_OFF
    assert able.look_up("default", "gpt-5").code == availability.CALLABLE

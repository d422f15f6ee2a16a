"""Keys and groups with and without limits, and the demands of calls."""

from dataclasses import replace

from handlers.relay.limits.limits import Demand
from store.catalog.catalog import Group
from tests.handlers.relay.calls import KEY


def key_of(**limits):
    return replace(KEY, id="k", user_id="u", **limits)


def group_of(**limits):
    return Group("default", 10**6, None, frozenset(), False, **limits)


def demand_of(inputs=100, outputs=5000):
    return Demand(inputs, inputs + outputs, inputs + min(outputs, 256))

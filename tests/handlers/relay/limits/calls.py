"""Keys and groups with and without limits, and what calls ask of them."""

from handlers.relay.limits.limits import Demand
from store.catalog.catalog import Group
from store.catalog.keys import KeyEntry

KEY = {
    "id": "k", "name": "laptop", "user_id": "u", "user": "alice", "group": "default",
    "disabled": False, "revoked": False, "expires_ms": None, "models": None, "networks": (),
    "spend_order": "plan_first", "valid_until_ms": None,
}  # fmt: skip


def key_of(**limits):
    return KeyEntry(**KEY, **limits)


def group_of(**limits):
    return Group("default", 10**6, None, frozenset(), False, **limits)


def demand_of(inputs=100, outputs=5000):
    return Demand(inputs, inputs + outputs, inputs + min(outputs, 256))

"""Channels of one model as in a snapshot, functions that make them fail, and a worker that
plans."""

import random

from adapters.faults import Condition, Fault
from handlers.relay.limits.cells import private_cells
from handlers.relay.limits.limits import Limits
from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS
from handlers.relay.routing.health import Health
from handlers.relay.routing.plan import Planner, RoutingRequest
from handlers.relay.routing.selector import Selector
from store.catalog.catalog import Channel

MODEL = "m"
FAILED = Fault(Condition.UPSTREAM_FAILED)


def channel(name, priority=0, weight=1, keys=("k",), **more):
    fields = {
        "id": f"id-{name}",
        "vendor": "demo",
        "family": "chat_completions",
        "base_url": "http://x",
        "groups": frozenset({"all"}),
        "models": {MODEL: "up"},
        "enabled": True,
        "fingerprints": tuple(f"mark-{key}" for key in keys),
        **more,
    }
    return Channel(name=name, keys=tuple(keys), priority=priority, weight=weight, **fields)


def routing_request(channels, model=MODEL, **more):
    """Return the routing request of a call in the channels' own family."""
    return RoutingRequest(channels, "chat_completions", model, **more)


def fail(health, one, times=CONSECUTIVE_FAULTS, at=0.0, key=0, fault=FAILED, **more):
    for _ in range(times):
        attempt = health.begin(one, MODEL, key, at)
        health.failed(attempt, at, fault, **more)


class Worker:
    """The selector of a worker, for calls over some channels."""

    def __init__(self, *channels, seed=1):
        chance = random.Random(seed).random
        self.health = Health(chance)
        self.limits = Limits(private_cells())
        self.selector = Selector(Planner(self.health, chance), self.limits)
        self.channels = channels

"""Cost of limits, planning and circuit breakers for a call, thread CPU in us.

    python -m tools.bench.routing

200 channels and 200 models. Each model is served by one channel, by three, or by all (the worst
case); all are healthy, or some circuits are open; without limits, with those of the caller, or with
those of channel and upstream key. A call takes its limits, is planned, begins its attempt, gets its
first bytes, and ends.
"""

import logging
import random
import sys
import time

from adapters.faults import Condition, Fault
from handlers.relay.limits.cells import private_cells
from handlers.relay.limits.limits import Demand, Limits
from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS, STREAM
from handlers.relay.routing.health import Health
from handlers.relay.routing.plan import Candidate, Planner, RoutingRequest
from handlers.relay.routing.selector import Selector
from store.catalog.catalog import Channel, Group, Model, Snapshot
from store.catalog.keys import KeyEntry
from store.values.pricing import Prices, plain_rate

CHANNELS = MODELS = 200
CALLS = 8_000
ROUNDS = 5
FAMILY, GROUP = "chat_completions", "all"
PRICES = Prices(plain_rate({"input": 1, "output": 1}))
HIGH = {"rpm": 10**9, "tpm": 10**12, "concurrency": 10**6}  # never reached
NONE: dict[str, int] = {}
LIMITS = {
    "no limits": (NONE, NONE, NONE, NONE),
    "key": (HIGH, NONE, NONE, NONE),
    "key, user, group": (HIGH, HIGH, HIGH, NONE),
    "channel, its key": (NONE, NONE, NONE, HIGH),
    "all five": (HIGH, HIGH, HIGH, HIGH),
}


def with_prefix(prefix: str, limits: dict[str, int]) -> dict[str, int]:
    """Return the limits with a prefix before their names."""
    return {prefix + name: value for name, value in limits.items()}


def snapshot(serving: int, limits: dict[str, int]) -> Snapshot:
    """Return a catalog in which `serving` channels serve each model."""
    models = [f"model-{number}" for number in range(MODELS)]
    served: list[dict[str, str]] = [{} for _ in range(CHANNELS)]
    for place, model in enumerate(models):
        for offset in range(serving):
            served[(place + offset) % CHANNELS][model] = "up"
    channels = tuple(
        Channel(
            id=f"id-{number}",
            name=f"channel-{number}",
            vendor="demo",
            family=FAMILY,
            base_url="http://upstream.example",
            keys=("one", "two"),
            fingerprints=("mark of one", "mark of two"),
            groups=frozenset({GROUP}),
            models=names,
            priority=0,
            weight=1 + number % 5,
            enabled=True,
            **limits,
            **with_prefix("key_", limits),
        )
        for number, names in enumerate(served)
    )
    group = Group(GROUP, 10**6, None, frozenset({FAMILY}), False)
    known = {name: Model(name, None, None, False, 0, ((0, PRICES),)) for name in models}
    return Snapshot(1, {GROUP: group}, known, channels)


def failing(health: Health, catalog: Snapshot, every: int) -> None:
    """Open the circuits of every `every`-th channel, for all its models."""
    fault = Fault(Condition.UPSTREAM_FAILED)
    for channel in catalog.channels[::every]:
        for model in channel.models:
            for key in range(len(channel.keys)):
                for _ in range(CONSECUTIVE_FAULTS):
                    attempt = health.begin(channel, model, key, 0.0)
                    if attempt is not None:
                        health.failed(attempt, 0.0, fault)


def requests(catalog: Snapshot) -> list[RoutingRequest]:
    """Return a routing request for each model."""
    demand = Demand(100, 400, 356)
    models = (f"model-{number}" for number in range(MODELS))
    return [
        RoutingRequest(catalog.candidates(GROUP, model, FAMILY), FAMILY, model, None, demand)
        for model in models
    ]


def measure(serving: int, every: int | None, which: str) -> float:
    """Return the microseconds of thread CPU a call, the minimum of some rounds."""
    of_key, of_user, of_group, of_channel = LIMITS[which]
    catalog, chance = snapshot(serving, of_channel), random.Random(1).random
    health, limits = Health(chance), Limits(private_cells())
    selector = Selector(Planner(health, chance), limits)
    if every is not None:
        failing(health, catalog, every)
    group = Group(GROUP, 10**6, None, frozenset({FAMILY}), False, **of_group)
    own = (*("k" * 5), False, False, None, None, (), "plan_first", None)
    key = KeyEntry(*own, **of_key, **with_prefix("user_", of_user))
    made = requests(catalog)
    caller = (key, group) if key.limited or group.limited else None
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.thread_time_ns()
        for number in range(CALLS):
            one_call(made[number % MODELS], caller, selector, limits, health)
        best = min(best, (time.thread_time_ns() - began) / CALLS / 1000)
    return best


def one_call(
    request: RoutingRequest,
    caller: tuple[KeyEntry, Group] | None,
    selector: Selector,
    limits: Limits,
    health: Health,
) -> None:
    """Run the steps of a streamed call with a stopped clock. `caller`: use its limits."""
    slots, model = None, request.model
    if caller is not None:
        _, slots = limits.enter(*caller, request.demand)
        if isinstance(slots, Fault):
            raise slots
    candidate = selector.next(
        RoutingRequest(request.channels, FAMILY, model, None, request.demand), 1.0
    )
    if not isinstance(candidate, Candidate):
        raise RuntimeError("all channels are left out")
    attempt = health.begin(candidate.channel, model, candidate.key, 1.0, STREAM)
    if attempt is None:
        raise RuntimeError("the selected candidate may not begin")
    health.started(attempt, 1.0, 0.2)
    health.succeeded(attempt, 1.0)
    health.release(attempt)
    for taken in (slots, candidate.slots):
        if taken is not None:
            limits.leave(taken, 50)


def main() -> None:
    """Print a table."""
    logging.disable(logging.WARNING)  # each opened circuit is logged
    for serving in (1, 3, CHANNELS):
        for every, state in ((None, "all healthy"), (20, "5 % failing"), (3, "a third failing")):
            if serving == 1 and every is not None:
                continue  # no other channel serves the model
            costs = "  ".join(f"{which} {measure(serving, every, which):.2f}" for which in LIMITS)
            sys.stdout.write(f"{serving:4} channels a model, {state:16} us: {costs}\n")


if __name__ == "__main__":
    main()

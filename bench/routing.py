"""What planning and health cost a call: thread CPU, microseconds. `python -m bench.routing`.

200 channels and 200 models, each model served by all channels (the worst case) or by three; all
well, or some failing. A call is a plan, the begin of its attempt, the first bytes and the end.
"""

import logging
import random
import sys
import time

from adapters.faults import Condition, Fault
from handlers.relay.health import ROW, Health
from handlers.relay.plan import Planner
from store.catalog import Channel, Group, Model, Snapshot
from store.pricing import Prices

CHANNELS = MODELS = 200
CALLS = 40_000
ROUNDS = 5
FAMILY, GROUP = "chat_completions", "all"
PRICES = Prices(1, 1, 1, 1, 1, 1, 0)


def snapshot(serving: int) -> Snapshot:
    """A catalog in which each model is served by so many channels."""
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
            groups=frozenset({GROUP}),
            models=names,
            priority=0,
            weight=1 + number % 5,
            enabled=True,
        )
        for number, names in enumerate(served)
    )
    group = Group(GROUP, 10**6, None, frozenset({FAMILY}), False)
    known = {name: Model(name, None, None, False, 0, ((0, PRICES),)) for name in models}
    return Snapshot(1, {GROUP: group}, known, channels)


def failing(health: Health, catalog: Snapshot, every: int) -> None:
    """Every so many-th channel is put aside for all its models."""
    fault = Fault(Condition.UPSTREAM_FAILED)
    for channel in catalog.channels[::every]:
        for model in channel.models:
            for key in range(len(channel.keys)):
                for _ in range(ROW):
                    trial = health.begin(channel, model, key, 0.0)
                    if trial is not None:
                        health.failed(trial, 0.0, fault)


def measure(serving: int, every: int | None, streamed: bool) -> float:
    """Microseconds of thread CPU a call; the best of some rounds."""
    catalog, chance = snapshot(serving), random.Random(1).random
    health = Health(chance)
    planner = Planner(health, chance)
    if every is not None:
        failing(health, catalog, every)
    asked = [catalog.candidates(GROUP, f"model-{n % MODELS}", FAMILY) for n in range(MODELS)]
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.thread_time_ns()
        for number in range(CALLS):
            place = number % MODELS
            model = f"model-{place}"
            now = 1.0
            step = planner.plan(asked[place], model, now)[0]
            trial = health.begin(step.channel, model, step.key, now)
            if trial is None:
                raise RuntimeError("a plan holds what may not begin")
            if streamed:
                health.started(trial, now, 0.2)
            health.succeeded(trial, now)
            health.release(trial)
        best = min(best, (time.thread_time_ns() - began) / CALLS / 1000)
    return best


def main() -> None:
    """Prints a table."""
    logging.disable(logging.WARNING)  # each channel that is left alone is told
    for serving in (1, 3, CHANNELS):
        for every, words in ((None, "all well"), (20, "5 % failing"), (3, "a third failing")):
            if serving == 1 and every is not None:
                continue  # there is nothing left to choose
            plain, streamed = (measure(serving, every, kind) for kind in (False, True))
            costs = f"{plain:6.2f} us plain {streamed:6.2f} us stream"
            sys.stdout.write(f"{serving:4} channels a model, {words:16} {costs}\n")


if __name__ == "__main__":
    main()

"""The hold of a call: never less than the call can cost."""

import json
from random import Random

import pytest
from msgspec.structs import replace

from adapters.json.jsonio import top_level
from adapters.registry import FAMILIES
from handlers.relay import admit
from handlers.relay.admit import admit_body, find_offer, hold_bound
from handlers.relay.call import Attempt, Delivery
from handlers.relay.routing.plan import Candidate
from handlers.relay.settle import bill_of, charged_counts
from store.catalog.catalog import Group, Model, Snapshot
from store.values.meters import METERS, TOKEN_METERS
from store.values.pricing import Prices, conditional_rate, plain_rate
from store.values.usage import Extras, OtherUsage, Served, Usage, more_counts
from tests.handlers.relay.calls import NATIVE, a_call
from tests.handlers.relay.routing.channels import channel

CHAT, RESPONSES, MESSAGES, GOOGLE = FAMILIES
ONE = 10**9  # a unit of money, in nanos
PLAIN = {"input": 0, "output": 10**6 * ONE}  # one unit for each token of output
RATES = [
    ({"tier": "priority"}, {"input": 0, "output": 3 * 10**6 * ONE}),
    ({"tier": "flex"}, 500_000),
    ({"speed": "fast"}, {"input": 0, "output": 4 * 10**6 * ONE}),
    ({"input_over": 1000}, {"input": 0, "output": 5 * 10**6 * ONE}),
]
BODIES = {
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    RESPONSES: {"model": "m", "input": "Hi", "max_output_tokens": 1},
    MESSAGES: {
        "model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1,
    },
    GOOGLE: {"contents": [{"parts": [{"text": "Hi"}]}], "generationConfig": {"maxOutputTokens": 1}},
}  # fmt: skip
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def prices_of(prices, rates=()):
    plain = plain_rate(prices)
    made = (conditional_rate(plain, tuple(when.items()), amounts) for when, amounts in rates)
    return Prices(plain, tuple(made))


def admitted_of(family, fields, models, options=None, group_ppm=10**6):
    """Return an admitted call with this body; `models`: prices by name."""
    names = {name: f"up-{name}" for name in models}
    one = channel("main", family=family, models=names, options=options or {}, groups={"gold"})
    stored = {
        name: Model(name, None, None, False, 0, ((0, prices),)) for name, prices in models.items()
    }
    group = Group("gold", group_ppm, None, frozenset(FAMILIES), False)
    snapshot = Snapshot(1, {"gold": group}, stored, (one,))
    spoken = FAMILIES[family]
    attempt = Attempt(Candidate(one, 0), NATIVE, upstream_model="up-m")
    call = a_call(
        family, snapshot=snapshot, group=group, operation=spoken.client.operations["generate"],
        attempt=attempt,
    )  # fmt: skip
    body = json.dumps(BODIES[family] | fields).encode()
    spans = top_level(body)
    peek = spoken.client.peek(spans, call.head.operation, "m")
    offer = find_offer(call.head, "m")
    call.offer, call.admitted = offer, admit_body(call.head, offer, spans, peek, body)
    return call


def held(call, least=False):
    admitted = call.admitted
    return hold_bound(call.offer, admitted, admitted.output_bound_tokens, least=least) / ONE


@pytest.mark.parametrize(
    ("family", "fields", "options", "amount"),
    [
        (CHAT, {}, {}, 1),
        (CHAT, {"n": 4}, {}, 4),
        (CHAT, {"service_tier": "flex"}, {}, 1),  # the vendor may serve it by the plain tier
        *((family, {"service_tier": "priority"}, {}, 3) for family in (CHAT, RESPONSES)),
        (CHAT, {"service_tier": "Fast"}, {}, 3),
        (GOOGLE, {"serviceTier": "priority"}, {}, 3),
        (MESSAGES, {"speed": "fast"}, {}, 4),
        *((CHAT, {"service_tier": tier}, {"default_tier": "priority"}, 3)
          for tier in (None, "auto")),
        (CHAT, {"service_tier": "default"}, {"default_tier": "priority"}, 1),
        (CHAT, {"messages": [{"role": "user", "content": "x " * 4000}]}, {}, 5),
    ],
)  # fmt: skip
def test_the_dearest_rate_that_can_be_reached(family, fields, options, amount):
    call = admitted_of(family, fields, {"m": prices_of(PLAIN, RATES)}, options)
    assert held(call) == held(call, least=True) == amount


@pytest.mark.parametrize(
    ("family", "fields", "uses"),
    [
        (MESSAGES, {"tools": [SEARCH | {"max_uses": 3}]}, 3),
        (MESSAGES, {"tools": [SEARCH]}, 5),
        (RESPONSES, {"tools": [{"type": "web_search"}], "max_tool_calls": 8}, 8),
        (GOOGLE, {"tools": [{"googleSearch": {}}]}, 5),
        (CHAT, {"web_search_options": {}}, 5),
    ],
)
def test_uses_of_priced_tools(family, fields, uses):
    prices = prices_of({"input": 0, "output": 0, "web_search": ONE}, [({"tier": "flex"}, 500_000)])
    call = admitted_of(family, fields, {"m": prices})
    assert (held(call), held(call, least=True)) == (uses, 1)
    assert held(admitted_of(family, fields, {"m": prices_of({"input": 0, "output": 0})})) == 0


def test_other_models_that_may_work_inside():
    wise = prices_of({"input": 0, "output": 10**6 * ONE, "call": 99 * ONE}, RATES[2:3])
    models = {"m": prices_of({"input": 0, "output": 0}), "wise": wise}
    advisor = {"type": "advisor_20260301", "name": "advisor", "model": "wise"}

    def amounts(**fields):
        call = admitted_of(MESSAGES, fields, models)
        return held(call), held(call, least=True)

    assert amounts(tools=[advisor | {"max_uses": 2, "max_tokens": 300}]) == (600, 256)
    assert amounts(tools=[advisor]) == (5 * 8192, 256)
    assert amounts(fallbacks=[{"model": "wise"}], max_tokens=70) == (70, 70)
    fallbacks = [{"model": "wise", "max_tokens": 300, "speed": "fast"}, {"model": "m"}]
    assert amounts(fallbacks=fallbacks) == (1200, 1024)
    call = admitted_of(MESSAGES, {"tools": [advisor]}, models)
    other = replace(call.offer, channels=(channel("other", family=CHAT),))
    assert admit.inner_models(call.head, other, call.admitted.peek, 9, 9) == ()


# ---- random requests: their holds and possible costs ---------------------------------------------

TIERS = ["default", "flex", "priority", "ultrafast", "turbo"]
TOOLS = {
    RESPONSES: ["web_search", "file_search", "code_interpreter", "image_generation", "mcp"],
    MESSAGES: ["web_search_20250305", "web_fetch_20250910", "code_execution_20250825"],
    GOOGLE: ["googleSearch", "urlContext", "codeExecution", "googleMaps"],
}
PICTURE = {
    CHAT: {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "u"}]}]},
    GOOGLE: {"contents": [{"parts": [{"inlineData": {"mimeType": "audio/wav", "data": "AA"}}]}]},
}


def random_prices(random):
    prices = {"input": random.randrange(10**9), "output": random.randrange(10**9)}
    for meter in METERS:
        if random.random() < 0.4:
            prices.setdefault(meter, random.randrange(10**9))
    rates = []
    for _ in range(random.randrange(6)):
        when = {
            "tier": random.choice(TIERS), "speed": "fast", "geo": "us",
            "input_over": random.randrange(1000),
        }  # fmt: skip
        when = {name: value for name, value in when.items() if random.random() < 0.5}
        own = {meter: random.randrange(2 * 10**9) for meter in ("input", "output", "web_search")}
        rates.append((when, random.choice([random.randrange(3 * 10**6), own])))
    return prices_of(prices, [rate for rate in rates if rate[0]])


def random_fields(random, family):
    fields = {}
    if random.random() < 0.6:
        tier = random.choice(["auto", *TIERS])
        if family == MESSAGES:
            fields |= {"speed": random.choice(["standard", "fast"]), "inference_geo": "us"}
        else:
            fields["serviceTier" if family == GOOGLE else "service_tier"] = tier
    kinds = random.sample(TOOLS.get(family, []), random.randrange(1 + len(TOOLS.get(family, []))))
    if family == GOOGLE:
        fields["tools"] = [{kind: {}} for kind in kinds]
        fields["generationConfig"] = {
            "maxOutputTokens": random.randrange(1, 500), "candidateCount": random.randrange(1, 3),
        }  # fmt: skip
    elif kinds:
        more = [{}, {"max_uses": random.randrange(4)}] if family == MESSAGES else [{}]
        fields["tools"] = [{"type": kind, "name": kind, **random.choice(more)} for kind in kinds]
    if family == CHAT:
        fields |= {"n": random.randrange(1, 4), "max_tokens": random.randrange(1, 500)}
        fields["modalities"] = random.sample(["text", "audio", "image"], 2)
    if family == MESSAGES and random.random() < 0.5:
        fields["fallbacks"] = [{"model": "wise", "max_tokens": random.randrange(1, 300)}]
        fields.setdefault("tools", []).append(
            {"type": "advisor_20260301", "name": "a", "model": "wise", "max_tokens": 50}
        )
    return fields | (PICTURE.get(family, {}) if random.random() < 0.5 else {})


def split(random, total, names):
    """Return counts by name whose sum is at most the total."""
    counts = dict.fromkeys(names, 0)
    total = random.choice([total, random.randrange(total + 1)])
    for name in random.sample(sorted(names), len(names)):
        counts[name] = random.choice([total, random.randrange(total + 1), 0])
        total -= counts[name]
    return counts


TEXT = {
    "input": ["input", "cache_read", "cache_write", "cache_write_1h"],
    "output": ["output", "reasoning"],
}


def random_usage(random, inputs, outputs, meters=(), uses=()):
    """Return a random usage within these bounds."""
    counts = {}
    for side, most in (("input", inputs), ("output", outputs)):
        own = [name for name in meters if (METERS[name].side == "output") is (side == "output")]
        counts |= split(random, most, {*TEXT[side], *own})
    fields = [
        counts.pop(name) for name in TOKEN_METERS if name in (*TEXT["input"], *TEXT["output"])
    ]
    return Usage(
        *fields, more=more_counts(counts | {name: random.randrange(n + 1) for name, n in uses})
    )


def random_others(random, call):
    others = []
    for ask, inner in zip(call.admitted.peek.asks.models, call.admitted.inner_models, strict=True):
        for _ in range(random.randrange(inner.uses + 1)):
            usage = random_usage(random, inner.input_tokens, inner.output_tokens)
            others.append(OtherUsage(f"up-{ask.name}", usage, "advisor"))
    return tuple(others)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_call_that_keeps_to_its_bounds_costs_more_than_it_holds(family):
    dear = 0
    for seed in range(400):
        random = Random(f"{family} {seed}")
        models = {"m": random_prices(random), "wise": random_prices(random)}
        options = random.choice([{}, {"default_tier": random.choice(TIERS)}])
        ppm = random.choice([10**6, 1_234_567])
        fields = random_fields(random, family)
        call = admitted_of(family, fields, models, options, ppm)
        admitted = call.admitted
        asks = admitted.peek.asks
        amount = hold_bound(call.offer, admitted, admitted.output_bound_tokens)
        tiers = {asks.conditions.tier, "default", ""}
        if not asks.conditions.tier:
            tiers.add(options.get("default_tier", ""))
        for _ in range(5):
            usage = random_usage(
                random, admitted.input_bound_tokens, admitted.output_bound_tokens,
                admitted.other_meters, asks.uses,
            )  # fmt: skip
            if others := random_others(random, call):
                usage = replace(usage, extras=Extras(other_models=others))
            served = Served(
                random.choice(sorted(tiers)),
                random.choice(["", asks.conditions.speed]),
                random.choice(["", asks.conditions.geo]),
            )
            delivery = Delivery(True, True, usage, {}, 0, "id", served)
            bill = bill_of(call, delivery, charged_counts(call, delivery))
            assert bill.cost_nanos <= amount, (seed, fields, usage, served)
            dear += bill.cost_nanos * 2 > amount > 0
    assert dear > 200  # the bound is not far too high

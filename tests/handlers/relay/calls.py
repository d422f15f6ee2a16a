"""A call as the relay holds it."""

from adapters.codecs import PAIRINGS
from adapters.family import Operation, Peek
from adapters.registry import FAMILIES
from handlers.relay.call import (
    Admitted,
    Arrival,
    Attempt,
    Call,
    Content,
    Held,
    Offer,
    Outcome,
    Requested,
    RequestHead,
)
from handlers.relay.routing.plan import Candidate
from store.catalog.catalog import EMPTY, Channel, Group, Model
from store.catalog.keys import KeyEntry
from tests.support.prices import prices_of

CALL_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
STARTED_MS = 1_800_000_000_000
# Prices are multiples of a million nanos a token: the cost in millions of nanos is the sum of
# counts times prices.
PRICES = prices_of(*(price * 10**12 for price in (1, 2, 3, 4, 5, 6)), 7_000_000)
KEY = KeyEntry(
    id="key-id", name="laptop", user_id="user-id", user="alice", group="gold", disabled=False,
    revoked=False, expires_ms=None, models=None, networks=(), spend_order="plan_first",
    valid_until_ms=None,
)  # fmt: skip
CHANNEL = Channel(
    id="channel-id", name="main", vendor="demo", family="messages", base_url="http://u.test",
    keys=("k",), groups=frozenset({"gold"}), models={"m": "alias"}, priority=0, weight=1,
    enabled=True,
)  # fmt: skip
NATIVE = PAIRINGS["messages", "messages"]
KINDS = (RequestHead, Offer, Admitted, Held, Content, Outcome, Call)


def model(context_tokens=None, max_output_tokens=None):
    return Model("m", context_tokens, max_output_tokens, False, 0, ((0, PRICES),))


def a_call(family="chat_completions", **changes):
    """Return an admitted call; `changes` are values of any phase, by the name of their field."""
    given = {
        "arrival": Arrival(CALL_ID, STARTED_MS, "198.51.100.7", "agent/1", "client-id"),
        "family": FAMILIES[family],
        "operation": Operation("/v1/some/endpoint"),
        "key": KEY,
        "client_headers": {},
        "snapshot": EMPTY,
        "group": Group("gold", 10**6, None, frozenset({family}), False),
        "model": model(),
        "prices": PRICES,
        "channels": (),
        "peek": Peek("m", False, 300, 1, include_usage=True),
        "rates": PRICES.alone,
        "input_estimate_tokens": 40,
        "input_bound_tokens": 100,
        "output_bound_tokens": 300,
        "attempt": Attempt(Candidate(CHANNEL, 0), PAIRINGS[family, family]),
        "requested": Requested("m"),
        **changes,
    }

    def part(kind, **more):
        return kind(
            **{name: given[name] for name in kind.__struct_fields__ if name in given}, **more
        )

    offer = part(Offer) if given["model"] is not None else None
    admitted = part(Admitted, offer=offer)
    head = part(RequestHead)
    phases = {"id": head.arrival.call_id, "head": head, "offer": offer, "admitted": admitted}
    phases |= {"held": part(Held), "content": part(Content), "outcome": part(Outcome)}
    fields = {name: given[name] for name in Call.__struct_fields__ if name in given}
    call = Call(**phases, **fields)
    assert set(changes) <= {name for kind in KINDS for name in kind.__struct_fields__}
    return call

"""Calls of keys with and without limits."""

from adapters.family import Operation, Peek
from adapters.registry import FAMILIES
from handlers.relay.call import Arrival, Call
from store.catalog.catalog import EMPTY, Group
from store.catalog.keys import KeyEntry

KEY = {
    "id": "k", "name": "laptop", "user_id": "u", "user": "alice", "group": "default",
    "disabled": False, "revoked": False, "expires_ms": None, "models": None, "networks": (),
    "spend_order": "plan_first", "valid_until_ms": None,
}  # fmt: skip
FREE = Operation("/v1/count", free=True, counting=True)
PAID = Operation("/v1/call")


def call(operation=PAID, key=None, group=None, inputs=100, outputs=5000, stated=5000, choices=1):
    made = Call(
        arrival=Arrival("id", 0, "127.0.0.1", None, None),
        family=FAMILIES["messages"],
        operation=operation,
        key=KeyEntry(**KEY, **(key or {})),
        client_headers={},
        snapshot=EMPTY,
    )
    made.group = Group("default", 10**6, None, frozenset(), False, **(group or {}))
    made.peek = Peek("m", False, stated, choices, include_usage=True)
    made.input_estimate_tokens, made.output_bound_tokens = inputs, outputs
    return made

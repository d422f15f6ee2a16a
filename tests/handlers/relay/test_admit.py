"""Admission of a caller: credentials and the state of the key."""

from contextlib import nullcontext
from dataclasses import replace
from ipaddress import ip_network

import pytest

from adapters.family import Peek
from adapters.family.asks import Ask, Asks
from adapters.family.stored import StoredRef
from adapters.faults import Condition, Fault
from handlers.relay import admit
from handlers.relay.limits.limits import Demand
from tests.handlers.relay.calls import KEY, a_call, model

CHAT = ("authorization",)
MESSAGES = ("authorization", "x-api-key")


@pytest.mark.parametrize(("headers", "sources", "expected"), [
    ({"authorization": "Bearer k-1"}, CHAT, "k-1"),
    ({"authorization": "bearer k-1"}, CHAT, "k-1"),
    ({"x-api-key": "k-2"}, MESSAGES, "k-2"),
    ({"authorization": "Bearer k-1", "x-api-key": "k-2"}, MESSAGES, "k-1"),
    ({"authorization": "k-1"}, CHAT, Condition.MALFORMED_AUTHORIZATION),
    ({"authorization": "Bearer  k-1"}, CHAT, Condition.MALFORMED_AUTHORIZATION),
    ({"authorization": "Bearer "}, CHAT, Condition.MALFORMED_AUTHORIZATION),
    ({"authorization": "Basic abc"}, CHAT, Condition.MALFORMED_AUTHORIZATION),
    ({"authorization": "Bearer a b"}, CHAT, Condition.MALFORMED_AUTHORIZATION),
    # The first source decides: a valid x-api-key does not make up for a bad Authorization.
    ({"authorization": "k-1", "x-api-key": "k-2"}, MESSAGES, Condition.MALFORMED_AUTHORIZATION),
    ({"x-api-key": "k-2"}, CHAT, Condition.MISSING_KEY),
    ({"x-api-key": ""}, MESSAGES, Condition.MISSING_KEY),
    ({}, MESSAGES, Condition.MISSING_KEY),
])  # fmt: skip
def test_credential(headers, sources, expected):
    if isinstance(expected, Condition):
        with pytest.raises(Fault) as caught:
            admit.credential(headers.get, sources)
        assert caught.value.condition is expected
    else:
        assert admit.credential(headers.get, sources) == expected


@pytest.mark.parametrize(("changes", "condition"), [
    ({}, None),
    ({"disabled": True}, Condition.KEY_DISABLED),
    ({"revoked": True}, Condition.KEY_DISABLED),
    ({"expires_ms": 1000}, Condition.KEY_EXPIRED),
    ({"expires_ms": 1001}, None),
    ({"valid_until_ms": 999}, Condition.KEY_EXPIRED),
    ({"networks": (ip_network("192.0.2.0/24"),)}, Condition.IP_NOT_ALLOWED),
    ({"networks": (ip_network("203.0.113.0/24"),)}, None),
    ({"disabled": True, "expires_ms": 1}, Condition.KEY_DISABLED),
])  # fmt: skip
def test_check_key(changes, condition):
    with pytest.raises(Fault) if condition else nullcontext() as caught:
        admit.check_key(replace(KEY, **changes), "203.0.113.9", now_ms=1000)
    assert condition is None or caught.value.condition is condition


@pytest.mark.parametrize(("outputs", "stated", "choices", "tokens", "least"), [
    (5000, 5000, 1, 5100, 356),
    (10, 10, 1, 110, 110),
    (10**9, 10**9, 1, 10**9 + 100, 356),
    (64_000, None, 1, 8292, 356),
    (128_000, None, 2, 2 * 8192 + 100, 356),
    (1000, None, 1, 1100, 356),
])  # fmt: skip
def test_tokens_that_a_call_asks_of_limits(outputs, stated, choices, tokens, least):
    peek = Peek("m", False, stated, choices, include_usage=True)
    assert admit.demand_of(peek, 100, outputs) == Demand(100, tokens, least)


def asking(feature):
    return Peek("m", False, None, 1, True, asks=Asks((Ask(feature, "path"),)))


TEXT = b'{"model":"m","messages":[{"role":"user","content":"an \\"image\\" of tea"}]}'


@pytest.mark.parametrize(("changes", "alone"), [
    ({}, True),
    ({"model": model(1000)}, False),
    ({"refs": (StoredRef("file", "file_id", "file-1"),)}, False),
    ({"body": TEXT + b" " * admit.TEXT_MAX_BYTES}, False),
    ({"body": b""}, False),
    ({"model": None}, False),
    *(({"peek": asking(feature)}, True)
      for feature in ("", "tier.flex", "speed.fast", "geo", "image_output", "background")),
    *(({"peek": asking(feature)}, False)
      for feature in ("web_search", "mcp", "advisor", "fallbacks.default", "any_other_tool")),
    *(({"body": b'{"a":{%b:1}}' % mark}, False)
      for mark in (b'"image_url"', b'"document"', b'"inlineData"', b'"video"', b'"\\u0069mage"')),
])  # fmt: skip
def test_whether_the_input_is_text_alone(changes, alone):
    assert admit.is_text_alone(a_call(**{"body": TEXT, **changes})) is alone

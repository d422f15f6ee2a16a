"""Header lines for upstreams and headers of refusals."""

import pytest

from adapters.family.headers import base_lines, forwarded, is_safe, refusal_headers
from adapters.faults import Condition, Fault
from adapters.registry import VENDORS


@pytest.mark.parametrize("key", ["a\rb", "a\nb", "a\0b", "ключ", "x" * 8193])
def test_a_key_that_cannot_stand_in_a_header_is_the_channels_fault(key):
    with pytest.raises(Fault) as caught:
        base_lines({}, VENDORS["openai"], key)
    assert caught.value.condition is Condition.CHANNEL_MISCONFIGURED


def test_only_named_and_safe_headers_are_forwarded():
    client = {"a": "1", "b": "x\r\ny: z", "c": "", "d": "4"}
    assert forwarded(client, ("a", "b", "c", "e")) == ["a: 1"]
    assert is_safe("a b\tc~") and not is_safe("\x7f")


def test_refusals():
    plain = {"content-type": "application/json"}
    no_retry = {**plain, "x-should-retry": "false"}
    assert refusal_headers(Fault(Condition.INVALID_FIELD, param="n")) == plain
    assert refusal_headers(Fault(Condition.INVALID_KEY)) == no_retry
    for condition in (Condition.MISSING_KEY, Condition.MALFORMED_AUTHORIZATION):
        assert refusal_headers(Fault(condition)) == {**no_retry, "www-authenticate": "Bearer"}
    assert refusal_headers(Fault(Condition.RATE_LIMITED)) == {**plain, "retry-after": "3"}
    assert refusal_headers(Fault(Condition.METHOD_NOT_ALLOWED)) == {**plain, "allow": "POST"}
    both = Fault(Condition.METHOD_NOT_ALLOWED, allow="GET, HEAD")
    assert refusal_headers(both)["allow"] == "GET, HEAD"

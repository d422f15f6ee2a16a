"""Errors of the upstream client, as clients see them."""

from typing import get_args

import pytest

from adapters.faults import Condition
from handlers.relay.upstream.client import UpstreamError, UpstreamErrorKind
from handlers.relay.upstream.errors import fault_of, may_fail_over

# kind -> condition, whether another channel may be tried, and the same with retry_timeouts
EXPECTED = {
    "connect": (Condition.UPSTREAM_UNREACHABLE, True, True),
    "tls": (Condition.UPSTREAM_UNREACHABLE, True, True),
    "ca_file": (Condition.CHANNEL_MISCONFIGURED, True, True),
    "timeout_connect": (Condition.UPSTREAM_UNREACHABLE, True, True),
    "reset_before_head": (Condition.UPSTREAM_FAILED, True, True),
    "truncated": (Condition.UPSTREAM_FAILED, True, True),
    "too_large": (Condition.UPSTREAM_INVALID, True, True),
    "protocol": (Condition.UPSTREAM_INVALID, True, True),
    "timeout_first_byte": (Condition.UPSTREAM_TIMEOUT, False, True),
    "timeout_idle": (Condition.UPSTREAM_TIMEOUT, False, True),
}


def test_every_kind_is_known():
    assert set(EXPECTED) == set(get_args(UpstreamErrorKind))


@pytest.mark.parametrize("kind", EXPECTED)
def test_an_error_of_the_upstream(kind):
    error = UpstreamError(kind, "connect to 10.0.0.7 port 443 failed: key sk-vendor")
    fault = fault_of(error)
    condition, retry, with_timeouts = EXPECTED[kind]
    assert fault.condition is condition and fault.blame != "client"
    assert may_fail_over(error, retry_timeouts=False) is retry
    assert may_fail_over(error, retry_timeouts=True) is with_timeouts
    # The detail is for operators only, because it names hosts.
    assert fault.message and "10.0.0.7" not in fault.message and "sk-vendor" not in fault.message

"""Channels that are asked to count tokens. For the paths of calls see
tests/adapters/test_vendors.py."""

import pytest

from adapters.registry import VENDORS
from tests.support import dialects
from tests.support.client import exchange
from tests.support.documents import channel, document

COUNTS = {
    dialects.RESPONSES: "/v1/responses/input_tokens",
    dialects.MESSAGES: "/v1/messages/count_tokens",
}
BOUNDS = ("max_tokens", "max_output_tokens")


@pytest.fixture(scope="module")
def gateway(launch, dead_port):
    """Return a gateway with a vendor that cannot count, in a group that does not translate."""
    assert not VENDORS["ollama"].counts
    never = f"http://127.0.0.1:{dead_port}"
    channels = [channel(f, f, never, {"never": "up"}, vendor="ollama") for f in COUNTS]
    made = document(["never"], channels)
    made["group"] = [{"name": "all", "translate": False}]
    return launch(made)


@pytest.mark.parametrize("family", COUNTS)
def test_a_vendor_that_cannot_count_is_not_asked(gateway, family):
    body = dialects.ask(family, "never")
    body = {name: value for name, value in body.items() if name not in BOUNDS}
    headers = dialects.credentials(family)
    answer = exchange(gateway.port, "POST", COUNTS[family], headers, body)
    message = dialects.check_refusal(answer, family, "E31")
    assert message == "No channel of this model counts tokens."
    record = gateway.record(answer.call_id)
    assert (record["attempts"], record["cost"]) == ([], "0")

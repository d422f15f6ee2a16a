"""Which channels are asked to count tokens. Where calls go: tests/adapters/test_vendors.py."""

import pytest

from adapters.registry import VENDORS
from tests.support import dialects
from tests.support.client import exchange
from tests.support.documents import channel, document

COUNTS = {
    dialects.RESPONSES: "/v1/responses/input_tokens",
    dialects.MESSAGES: "/v1/messages/count_tokens",
    dialects.GENERATE: "/v1beta/models/{model}:countTokens",
}
COUNTLESS = (dialects.RESPONSES, dialects.MESSAGES)  # of the vendor that does not count
TRANSLATING = "sk-test-of-a-translating-group-0123456789"


@pytest.fixture(scope="module")
def gateway(launch, vendor, dead_port):
    """A model that nobody counts, and one that two vendors serve, of which the second one counts.
    One of two groups keeps its keys to channels of the family that they call."""
    assert not VENDORS["ollama"].counts
    never = f"http://127.0.0.1:{dead_port}"
    channels = [channel(f"counts-{f}", f, vendor.url, {"both": "up"}) for f in COUNTS]
    for family in COUNTLESS:
        models = {"both": "up", "never": "up"}
        channels.append(channel(f"never-{family}", family, never, models, vendor="ollama",
                                priority=9))  # fmt: skip
    groups = ["all", "translating"]
    made = document(["never", "both"], [{**one, "groups": groups} for one in channels])
    made["group"] = [{"name": "all", "translate": False}, {"name": "translating"}]
    other = {"name": "other", "group": "translating", "secret": TRANSLATING}
    made["key"].append({**made["key"][0], **other})
    return launch(made)


def count(gateway, family, model, secret=dialects.SECRET):
    bounds = ("max_tokens", "max_output_tokens", "generationConfig")
    body = {
        name: value for name, value in dialects.ask(family, model).items() if name not in bounds
    }
    path = COUNTS[family].format(model=model)
    answer = exchange(gateway.port, "POST", path, dialects.credentials(family, secret), body)
    return answer, gateway.record(answer.call_id)


@pytest.mark.parametrize("family", COUNTLESS)
def test_a_vendor_that_cannot_count_is_not_asked(gateway, family):
    answer, record = count(gateway, family, "never")
    assert (
        dialects.check_refusal(answer, family, "E31") == "No channel of this model counts tokens."
    )
    assert (record["attempts"], record["cost"]) == ([], "0")


@pytest.mark.parametrize("family", COUNTLESS)
def test_where_other_families_serve_the_model_the_count_is_an_estimate(gateway, family):
    answer, record = count(gateway, family, "never", TRANSLATING)
    assert (answer.status, answer.headers["x-token-count"]) == (200, "estimated")
    assert (record["attempts"], record["cost"]) == ([], "0")


@pytest.mark.parametrize("family", COUNTS)
def test_a_channel_that_counts_is_asked_in_its_place(gateway, family):
    answer, record = count(gateway, family, "both")
    assert answer.status == 200
    assert answer.json["totalTokens" if family == dialects.GENERATE else "input_tokens"] > 0
    assert [attempt["channel"] for attempt in record["attempts"]] == [f"counts-{family}"]

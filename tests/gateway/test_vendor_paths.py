"""Where the relay sends a call by its channel's vendor, and which channels are asked to count."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from adapters.registry import VENDORS
from tests.support.client import exchange
from tests.support.dialects import (
    CHAT,
    GENERATE,
    MESSAGES,
    RESPONSES,
    SECRET,
    ask,
    check_refusal,
    credentials,
    path_of,
)
from tests.support.documents import channel, document
from tests.support.upstream import RawUpstream

SPOKEN = [(name, family) for name, row in VENDORS.items() for family in sorted(row.families)]
COUNTS = {
    RESPONSES: "/v1/responses/input_tokens",
    MESSAGES: "/v1/messages/count_tokens",
    GENERATE: "/v1beta/models/{model}:countTokens",
}
COUNTLESS = [(n, f) for n, f in SPOKEN if f != CHAT and not VENDORS[n].counts]
TRANSLATING = "sk-test-of-a-translating-group-0123456789"
REFUSES = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def upstream():
    with RawUpstream() as raw:
        yield raw


@pytest.fixture(scope="module")
def gateway(launch, upstream, vendor):
    """A model for each vendor; one that two vendors serve, of which the second one counts. One of
    two groups keeps its keys to channels of the family that they call."""
    channels = [
        channel(f"{name}-{family}", family, upstream.url, {name: "up-model"}, vendor=name)
        for name, family in SPOKEN
    ]
    for family in COUNTS:
        channels.append(channel(f"counts-{family}", family, vendor.url, {"both": "up"}))
    for family in (RESPONSES, MESSAGES):
        channels.append(channel(f"never-{family}", family, upstream.url, {"both": "up"},
                                vendor="ollama", priority=9))  # fmt: skip
    groups = ["all", "translating"]
    made = document([*VENDORS, "both"], [{**one, "groups": groups} for one in channels])
    made["group"] = [{"name": "all", "translate": False}, {"name": "translating"}]
    other = {"name": "other", "group": "translating", "secret": TRANSLATING}
    made["key"].append({**made["key"][0], **other})
    return launch(made)


def request_line(gateway, upstream, path, headers, body):
    """The first line of what reaches the upstream, which refuses it."""

    def answer():
        peer = upstream.accept()
        peer.send(REFUSES)
        peer.close()
        return peer.request.partition(b"\r\n")[0].decode()

    with ThreadPoolExecutor(1) as thread:
        line = thread.submit(answer)
        assert exchange(gateway.port, "POST", path, headers, body).status == 400
        return line.result()


@pytest.mark.parametrize(("name", "family"), SPOKEN)
def test_a_call_goes_where_the_vendor_takes_it(gateway, upstream, name, family):
    path = path_of(family, name)
    line = request_line(gateway, upstream, path, credentials(family), ask(family, name))
    wanted = VENDORS[name].prefixes.get(family, "") + path.replace(f"/{name}:", "/up-model:")
    assert line == f"POST {wanted} HTTP/1.1"


def count(gateway, family, model, secret=SECRET):
    bounds = ("max_tokens", "max_output_tokens", "generationConfig")
    body = {name: value for name, value in ask(family, model).items() if name not in bounds}
    path = COUNTS[family].format(model=model)
    return exchange(gateway.port, "POST", path, credentials(family, secret), body)


@pytest.mark.parametrize(("name", "family"), COUNTLESS)
def test_a_vendor_that_cannot_count_is_not_asked(gateway, name, family):
    answer = count(gateway, family, name)
    assert check_refusal(answer, family, "E31") == "No channel of this model counts tokens."
    record = gateway.record(answer.call_id)
    assert (record["attempts"], record["cost"]) == ([], "0")


@pytest.mark.parametrize(("name", "family"), COUNTLESS)
def test_where_other_families_serve_the_model_the_count_is_an_estimate(gateway, name, family):
    answer = count(gateway, family, name, TRANSLATING)
    assert (answer.status, answer.headers["x-token-count"]) == (200, "estimated")
    record = gateway.record(answer.call_id)
    assert (record["attempts"], record["cost"]) == ([], "0")


@pytest.mark.parametrize("family", COUNTS)
def test_a_channel_that_counts_is_asked_in_its_place(gateway, family):
    answer = count(gateway, family, "both")
    assert answer.status == 200
    assert json.loads(answer.body)["totalTokens" if family == GENERATE else "input_tokens"] > 0
    record = gateway.record(answer.call_id)
    assert [attempt["channel"] for attempt in record["attempts"]] == [f"counts-{family}"]

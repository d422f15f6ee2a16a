"""A vendor refuses a part of the request that can be left out: it is asked once more without it."""

import json

import pytest

from tests.support.gateway import Gateway

SECRET = "sk-retry-0123456789abcdef"


@pytest.fixture(scope="module")
def gateway(launch, vendor) -> Gateway:
    families = ("chat_completions", "messages")
    return launch(
        {
            "model": [{"name": f, "price": {"input": "1", "output": "1"}} for f in families],
            "group": [{"name": "default"}],
            "channel": [
                {
                    "name": family,
                    "vendor": "demo",
                    "family": family,
                    "base_url": vendor.url,
                    "keys": ["sk-up"],
                    "models": {family: "up"},
                }
                for family in families
            ],
            "user": [{"name": "alice", "balance": "10"}],
            "key": [{"user": "alice", "name": "k", "secret": SECRET}],
        }
    )


def ask(gateway, vendor, path, body, headers=None):
    """(status, JSON, what reached the vendor)"""
    before = len(vendor.log())
    sent = {"Authorization": f"Bearer {SECRET}", **(headers or {})}
    status, _, answer = gateway.call("POST", path, body, sent)
    return status, json.loads(answer), vendor.log()[before:]


def prompt(words):
    return [{"role": "user", "content": f"[[demo status=400 message={json.dumps(words)}]]"}]


def test_a_retired_beta_is_left_out_once(gateway, vendor):
    words = "Unexpected value for the anthropic-beta header"
    body = {"model": "messages", "max_tokens": 9, "messages": prompt(words)}
    betas = {"anthropic-beta": "gone-2020-01-01", "anthropic-version": "2023-06-01"}
    status, _, seen = ask(gateway, vendor, "/v1/messages", body, betas)
    assert status == 400
    assert [entry["headers"].get("anthropic-beta") for entry in seen] == ["gone-2020-01-01", None]


def test_usage_that_the_gateway_asked_for_is_left_out_once(gateway, vendor):
    words = "Unknown parameter: stream_options"
    body = {"model": "chat_completions", "stream": True, "messages": prompt(words)}
    status, _, seen = ask(gateway, vendor, "/v1/chat/completions", body)
    assert status == 400
    assert ["stream_options" in json.loads(entry["body"]) for entry in seen] == [True, False]


def test_any_other_refusal_is_final(gateway, vendor):
    body = {"model": "chat_completions", "messages": prompt("temperature is too high")}
    status, answer, seen = ask(gateway, vendor, "/v1/chat/completions", body)
    assert (status, answer["error"]["code"], len(seen)) == (400, "upstream_invalid_request", 1)

"""Requests whose input alone is more than a limit allows in a minute: they never fit."""

import pytest

from tests.support.client import exchange
from tests.support.dialects import ALL, ask, check_refusal, credentials, path_of
from tests.support.documents import PRICE, channel
from tests.support.wallets import check_free, joined, owners, secret_of

TPM = 1000
LARGE = "word " * 1000  # some 1250 tokens
WORDS = "larger than the limit allows in a minute"
FOR_GOOD = {"retry_after": None, "x_should_retry": "false"}
MODEL, NARROW, MIXED = "model", "narrow", "mixed"
LIMITED = {
    "key": {"tpm": TPM},
    "several": {"tpm": 50 * TPM, "rpm": 100},  # of which the group's is the smallest
    "free": {},
}


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    models = dict.fromkeys((MODEL, NARROW, MIXED), "demo-small")
    wide = {name: models[name] for name in (MODEL, MIXED)}
    narrow = {name: models[name] for name in (NARROW, MIXED)}
    made = {
        "model": [{"name": name, "price": PRICE} for name in models],
        "group": [{"name": "all"}, {"name": "tight", "tpm": TPM}],
        "channel": [
            made
            for f in ALL
            for made in (
                channel(f"wide-{f}", f, vendor.url, wide, groups=["all", "tight"]),
                channel(f"narrow-{f}", f, vendor.url, narrow, priority=5, tpm=TPM),
            )
        ],
    }
    people = [
        owners([name], "10", group="tight" if name == "several" else "all", **limits)
        for name, limits in LIMITED.items()
    ]
    return launch(joined(made, *people))


def call(gateway, family, who, prompt, model=MODEL):
    body, headers = ask(family, model, prompt), credentials(family, secret_of(who))
    return exchange(gateway.port, "POST", path_of(family, model), headers, body)


@pytest.mark.parametrize("who", ["key", "several"])
@pytest.mark.parametrize("family", ALL)
def test_it_is_refused_for_good(gateway, family, who):
    answer = call(gateway, family, who, LARGE)
    message = check_refusal(answer, family, "E20", **FOR_GOOD)
    assert b"RetryInfo" not in answer.body
    assert WORDS in message and f"limit is {TPM} tokens" in message
    check_free(gateway.record(answer.call_id))


@pytest.mark.parametrize("family", ALL)
def test_it_takes_nothing_of_the_limit(gateway, family):
    for _ in range(5):
        assert call(gateway, family, "several", LARGE).status == 429
    assert call(gateway, family, "several", "Say something.").status == 200


@pytest.mark.parametrize("family", ALL)
def test_a_channel_that_is_too_small_is_no_candidate(gateway, family):
    answer = call(gateway, family, "free", LARGE, MIXED)
    assert answer.status == 200, answer.body
    record = gateway.record(answer.call_id)
    assert [attempt["channel"] for attempt in record["attempts"]] == [f"wide-{family}"]
    answer = call(gateway, family, "free", LARGE, NARROW)
    message = check_refusal(answer, family, "E09", **FOR_GOOD)
    assert "larger than any channel" in message

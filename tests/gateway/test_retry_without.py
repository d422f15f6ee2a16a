"""A vendor refuses a part of the request that may be omitted; it is asked once more without it."""

import json

import pytest

from tests.support.client import exchange
from tests.support.dialects import CHAT, MESSAGES, PATHS, ask, credentials
from tests.support.documents import channel, document

FAMILIES = (CHAT, MESSAGES)
BETA = {"anthropic-beta": "gone-2020-01-01"}


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    channels = [channel(family, family, vendor.url, {family: "up"}) for family in FAMILIES]
    return launch(document(FAMILIES, channels))


@pytest.mark.parametrize(
    ("family", "words", "sent"),
    [
        (MESSAGES, "Unexpected value for the anthropic-beta header", [True, False]),
        (CHAT, "Unknown parameter: stream_options", [True, False]),
        (CHAT, "temperature is too high", [True]),
    ],
)
def test_what_is_refused_is_left_out_once_and_any_other_refusal_is_final(
    gateway, vendor, family, words, sent
):
    before = len(vendor.log())
    script = f"[[demo status=400 message={json.dumps(words)}]]"
    body = ask(family, family, script, stream=family == CHAT)
    answer = exchange(gateway.port, "POST", PATHS[family], credentials(family) | BETA, body)
    assert answer.status == 400
    asked = vendor.log()[before:]
    if family == MESSAGES:
        assert ["anthropic-beta" in entry["headers"] for entry in asked] == sent
    else:
        assert answer.json["error"]["code"] == "upstream_invalid_request"
        assert ["stream_options" in json.loads(entry["body"]) for entry in asked] == sent

"""An upstream that answers 201: a complete answer is an answer, anything else is none."""

import contextlib
import json

import pytest

from tests.support.client import exchange
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import channel, document
from tests.support.echo import ANSWER, Echo, answer_of


@pytest.fixture(scope="module")
def upstream():
    with contextlib.closing(Echo()) as made:
        yield made


@pytest.fixture(scope="module")
def gateway(launch, upstream):
    yield launch(document(["m"], [channel("only", CHAT, upstream.url, {"m": "m"})]))


def call(gateway):
    answer = exchange(gateway.port, "POST", PATHS[CHAT], credentials(CHAT), ask(CHAT, "m"))
    return answer, gateway.record(answer.call_id)


def test_201_with_a_complete_answer_is_an_answer(gateway, upstream):
    upstream.answer = answer_of(201, ANSWER)
    answer, record = call(gateway)
    assert answer.status == record["status"] == 200
    assert json.loads(answer.body) == ANSWER
    assert (record["outcome"], record["attempts"][0]["status"]) == ("ok", 201)
    assert record["usage_source"] == "reported"


@pytest.mark.parametrize(
    ("status", "body"), [(201, b""), (201, b'{"id":1}'), (202, b"{}"), (204, b"")]
)
def test_what_is_no_complete_answer_stays_none(gateway, upstream, status, body):
    upstream.answer = answer_of(status, body)
    answer, record = call(gateway)
    assert answer.status == 502 and record["outcome"] == "upstream_error"
    assert record["attempts"][0]["status"] == status

"""A vendor sends more than its answers: no user meets another's bytes, no call fails.

Each form, with and without TLS: tests/handlers/relay/upstream/test_idle_connections.py.
"""

import contextlib
import json
import time

import pytest

from tests.support import surplus
from tests.support.certificates import Authority
from tests.support.client import wait_until
from tests.support.dialects import CHAT
from tests.support.documents import channel, document
from tests.support.surplus import SurplusVendor

FOR_S = 1.5
USERS = {"ann": "sk-ann-0123456789abcdef", "ben": "sk-ben-0123456789abcdef"}


def completion(mark):
    """A chat completion whose text is the mark of the request."""
    choice = {"index": 0, "message": {"role": "assistant", "content": mark.decode()},
              "finish_reason": "stop"}  # fmt: skip
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    said = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "up"}
    return json.dumps({**said, "choices": [choice], "usage": usage}).encode()


@pytest.fixture(scope="module")
def gateway(launch, tmp_path_factory):
    """Its vendor's answers take every form, most of them with more behind."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with contextlib.closing(
        SurplusVendor(surplus.FORMS, authority.server_context(), answer=completion)
    ) as vendor:
        ca_file = str(authority.ca_file)
        told = document(["m"], [channel("over", CHAT, vendor.url, {"m": "up"}, ca_file=ca_file)])
        told["user"] = [{"name": name, "balance": "1000"} for name in USERS]
        told["key"] = [
            {"user": name, "name": "k", "group": "all", "secret": secret}
            for name, secret in USERS.items()
        ]
        yield launch(told)


def alternate(gateway):
    """Users who ask in turn; the ids of their calls."""
    ends_s = time.monotonic() + FOR_S
    ids = []
    while time.monotonic() < ends_s:
        for name, secret in USERS.items():
            mark = f"<{name}-{len(ids)}>"
            body = {"model": "m", "messages": [{"role": "user", "content": mark}]}
            headers = {"Authorization": f"Bearer {secret}"}
            status, head, answer = gateway.call("POST", "/v1/chat/completions", body, headers)
            assert status == 200, answer
            assert json.loads(answer)["choices"][0]["message"]["content"] == mark
            ids.append(head["x-request-id"])
    return ids


def test_users_in_turn(gateway):
    ids = alternate(gateway)
    assert len(ids) > 20
    for call_id in ids:
        # The repetition is none of routing's business.
        record = gateway.record(call_id)
        assert (record["outcome"], len(record["attempts"])) == ("ok", 1)
        assert record["attempts"][0]["error"] is None
    assert "each connection serves one call until" in gateway.log()

    def workers():
        status, _, said = gateway.call("GET", "/status", port=gateway.ops_port)
        assert status == 200
        return json.loads(said)["workers"]

    assert wait_until(lambda: sum(one["upstream_surplus"] for one in workers()) > 0)

"""Which channel serves a call when those of a model speak several families, and what says so."""

import hashlib
import itertools
import json

import pytest

from adapters.registry import LOSSES
from tests.support.client import exchange
from tests.support.dialects import (
    ALL,
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
from tests.support.documents import PRICE, channel

CLOSED = "sk-test-of-the-closed-group-0123456789"
# a family whose channel is dead -> that of the channel which takes over
NEXT = dict(zip(ALL, (*ALL[1:], ALL[0]), strict=True))
_numbers = itertools.count()


def others(family):
    return [one for one in ALL if one != family]


def content(vendor, dead):
    """`falls-X`: its native channel is dead. `order-X`: all families but X, the one that loses
    most with the highest priority. `own`: kept to responses."""
    channels = [
        *(channel(f"falls-{one}-native", one, dead, {f"falls-{one}": "up"}) for one in ALL),
        *(
            channel(f"falls-{one}-next", NEXT[one], vendor.url, {f"falls-{one}": "demo-small"},
                    priority=50)
            for one in ALL
        ),
        *(
            channel(f"order-{one}-{family}", family, vendor.url, {f"order-{one}": "demo-small"},
                    priority=LOSSES[one, family])
            for one in ALL
            for family in others(one)
        ),
        channel("own", RESPONSES, vendor.url, {"own": "demo-small"}, translate=False),
        *(channel(f"native-{one}", one, vendor.url, {f"native-{one}": "demo-small"})
          for one in ALL),
    ]  # fmt: skip
    models = sorted({name for one in channels for name in one["models"]})
    groups = ["all", "closed"]
    return {
        "model": [{"name": name, "price": PRICE} for name in models],
        "group": [{"name": "all"}, {"name": "closed", "translate": False}],
        "channel": [{**one, "groups": groups} for one in channels],
        "user": [{"name": "owner", "balance": "1000"}],
        "key": [
            {"user": "owner", "name": "main", "group": "all", "secret": SECRET},
            {"user": "owner", "name": "closed", "group": "closed", "secret": CLOSED},
        ],
    }


@pytest.fixture(scope="module")
def gateway(launch, vendor, dead_port):
    return launch(content(vendor, f"http://127.0.0.1:{dead_port}"))


def call(gateway, family, model, secret=SECRET, *, stream=False):
    body = ask(family, model, f"Question {next(_numbers)}", stream=stream)
    path = path_of(family, model, stream)
    return exchange(gateway.port, "POST", path, credentials(family, secret), body)


def explain(gateway, family, model, secret=SECRET):
    args = ("--key", secret, "--model", model, "--endpoint", path_of(family, model))
    return json.loads(gateway.run("explain", *args, "--json"))


@pytest.mark.parametrize(("stops", "bound"), [(["x"] * 17, "16 str"), (["x" * 257], "256 char")])
def test_stop_sequences_are_bounded_where_the_gateway_looks_for_them(gateway, vendor, stops, bound):
    fields = {"stop": stops}
    path, sent = path_of(CHAT, ""), credentials(CHAT)
    body = ask(CHAT, f"order-{CHAT}", **fields)
    answer = exchange(gateway.port, "POST", path, sent, body)
    assert bound in check_refusal(answer, CHAT, "E12")
    assert answer.json["error"]["param"] == ("stop" if len(stops) > 1 else "stop[0]")
    vendor.reset()
    native = ask(CHAT, f"native-{CHAT}", **fields)
    plain = json.dumps(native).replace(f"native-{CHAT}", "demo-small").encode()
    exchange(gateway.port, "POST", path, sent, native)
    (entry,) = vendor.log()
    assert entry["sha256"] == hashlib.sha256(plain).hexdigest()


@pytest.mark.parametrize(
    ("family", "stream"), [(CHAT, True), (RESPONSES, False), (MESSAGES, True), (GENERATE, False)]
)
def test_a_native_channel_is_asked_first_and_a_translated_one_takes_over(gateway, family, stream):
    answer = call(gateway, family, f"falls-{family}", stream=stream)
    assert (answer.status, answer.whole) == (200, True), answer.body
    record = gateway.record(answer.call_id)
    tried = [one["channel"] for one in record["attempts"]]
    # what has failed a few times is left alone
    assert tried in ([f"falls-{family}-native", f"falls-{family}-next"], [f"falls-{family}-next"])
    assert (record["family"], record["upstream_family"]) == (family, NEXT[family])
    assert (record["outcome"], record["error_code"]) == ("ok", None)
    assert record["output_tokens"] > 0 and float(record["cost"]) > 0


@pytest.mark.parametrize("family", ALL)
def test_a_group_can_keep_its_keys_to_native_channels(gateway, family):
    model = f"order-{family}"
    said = check_refusal(call(gateway, family, model, CLOSED), family, "E08")
    assert "is not served at this entry; call it at" in said
    shown = explain(gateway, family, model, CLOSED)
    assert (shown["allowed"], shown["reason"]) == (False, "model_not_found")
    assert {one["reason"] for one in shown["channels"]} == {"translate_off"}
    for other in others(family):
        assert call(gateway, other, model, CLOSED).status == 200


@pytest.mark.parametrize("family", ALL)
def test_a_channel_can_be_kept_to_its_own_family(gateway, family):
    answer = call(gateway, family, "own")
    if family == RESPONSES:
        assert answer.status == 200
        assert explain(gateway, family, "own")["channels"][0]["translated_from"] is None
    else:
        assert "call it at /v1/responses." in check_refusal(answer, family, "E08")
        [one] = explain(gateway, family, "own")["channels"]
        assert (one["usable"], one["reason"]) == (False, "translate_off")

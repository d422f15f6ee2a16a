"""Gzipped requests of all families: the vendor gets plain bytes, and what is no gzip is refused."""

import gzip
import hashlib
import json

import pytest

from tests.support.client import Connection, encode_head, exchange
from tests.support.dialects import (
    ALL,
    MESSAGES,
    RESPONSES,
    SECRET,
    ask,
    check_refusal,
    credentials,
    path_of,
    text_of,
)
from tests.support.documents import CREDIT, PRICE, channel

LIMIT_BYTES = 1 << 20
EXPIRED = "sk-test-expired-0123456789"
MODEL = "packed-model"
PACKED = {"Content-Encoding": "gzip"}


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    channels = [channel(family, family, vendor.url, {MODEL: MODEL}) for family in ALL]
    document = {
        "model": [{"name": MODEL, "price": PRICE}],
        "group": [{"name": "all"}],
        "channel": channels,
        "user": [{"name": "owner", "balance": CREDIT}],
        "key": [
            {"user": "owner", "name": "main", "group": "all", "secret": SECRET},
            {"user": "owner", "name": "old", "group": "all", "secret": EXPIRED,
             "expires_at": "2020-01-01T00:00:00Z"},
        ],
    }  # fmt: skip
    return launch(document, {"server.max_body_bytes": LIMIT_BYTES})


every_family = pytest.mark.parametrize("family", ALL)


def body_of(family, size=0, **more):
    """The bytes of a usual call; with `size` of exactly so many."""
    body = json.dumps(ask(family, MODEL, "[[demo ms=0]]", **more)).encode()
    return body + b" " * (size - len(body))


def send(gateway, family, data, *, stream=False, secret=SECRET, **headers):
    sent = {**credentials(family, secret), **PACKED, **headers}
    return exchange(gateway.port, "POST", path_of(family, MODEL, stream), sent, data)


@every_family
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_the_vendor_gets_the_plain_body(gateway, vendor, family, stream, chunked):
    vendor.reset()
    # "include_usage" is there already, so that nothing has to be put into a body
    options = {"stream_options": {"include_usage": True}} if (family, stream) == (ALL[0], 1) else {}
    plain = json.dumps(ask(family, MODEL, "[[demo ms=0]]", stream=stream, **options)).encode()
    data, headers = gzip.compress(plain), {}
    if chunked:
        half = len(data) // 2
        pieces = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (data[:half], data[half:]))
        data, headers = pieces + b"0\r\n\r\n", {"Transfer-Encoding": "chunked"}
    answer = send(gateway, family, data, stream=stream, **headers)
    assert answer.status == 200 and answer.whole and text_of(family, answer.body)
    (entry,) = vendor.log()
    assert entry["sha256"] == hashlib.sha256(plain).hexdigest()
    assert entry["headers"]["content-length"] == str(len(plain))
    assert not {"content-encoding", "transfer-encoding"} & set(entry["headers"])


@every_family
@pytest.mark.parametrize(
    ("coding", "pack"),
    [("br", bytes), ("zstd", bytes), ("deflate", bytes), ("gzip, gzip", gzip.compress),
     ("gzip", bytes), ("gzip", lambda plain: gzip.compress(plain)[:-1]),
     ("gzip", lambda plain: gzip.compress(plain) + b"\n")],
    ids=["br", "zstd", "deflate", "twice", "plain", "cut", "bytes behind"],
)  # fmt: skip
def test_what_does_not_decode_is_refused(gateway, vendor, family, coding, pack):
    vendor.reset()
    answer = send(gateway, family, pack(body_of(family)), **{"Content-Encoding": coding})
    check_refusal(answer, family, "E17")
    record = gateway.record(answer.call_id)
    assert (record["outcome"], record["error_code"]) == ("refused", "unsupported_content_encoding")
    assert vendor.log() == []


@every_family
def test_the_limit_is_of_the_plain_body(gateway, family):
    answer = send(gateway, family, gzip.compress(body_of(family, LIMIT_BYTES)))
    assert answer.status == 200
    answer = send(gateway, family, gzip.compress(body_of(family, LIMIT_BYTES + 1)))
    assert check_refusal(answer, family, "E15") == "The body is larger than 1 MiB."
    assert gateway.record(answer.call_id)["error_code"] == "request_too_large"


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmHWM"].split()[0])


def test_bombs_do_not_take_memory(gateway):
    """A megabyte that would unpack to more than two hundred, eight times at once."""
    bomb = gzip.compress(bytes(256 << 20), 1)[: LIMIT_BYTES - 1]
    (pid,) = gateway.worker_pids()
    before = resident_kib(pid)
    connections = [Connection(gateway.port) for _ in range(8)]
    for connection in connections:
        headers = {**credentials(MESSAGES), **PACKED}
        connection.send(
            encode_head("POST", path_of(MESSAGES, MODEL), headers, bomb) + bomb[:60_000]
        )
    for connection in connections:
        answer = connection.read()
        connection.close()
        check_refusal(answer, MESSAGES, "E15")
    assert resident_kib(pid) - before < 8 * 3 * (LIMIT_BYTES >> 10)


def test_the_record_of_a_refused_call_tells_the_model_of_a_packed_body(gateway):
    answer = send(gateway, RESPONSES, gzip.compress(body_of(RESPONSES)), secret=EXPIRED)
    check_refusal(answer, RESPONSES, "E05")
    assert gateway.record(answer.call_id)["model"] == MODEL

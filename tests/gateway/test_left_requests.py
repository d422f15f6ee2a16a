"""Clients that leave before an answer: what the vendor has to work on counts, and is paid."""

import contextlib
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.chat_streams import chat_stream, thought
from tests.support.client import Connection, exchange, wait_until
from tests.support.dialects import ALL, CHAT, ask, credentials, path_of
from tests.support.documents import PRICE, channel
from tests.support.upstream import STREAM_HEAD, RawUpstream
from tests.support.wallets import Wallets, check_charged, check_free, joined, owners, secret_of

CREDIT = "10"
RICH = "1000"
MODEL, DEAF, REFUSED, SLOW = "model", "deaf", "refused", "slow"
WORDS = "word " * 1000
SILENT = f"{WORDS} [[demo stall_before_head]]"
INPUT_TOKENS = (1200, 1400)  # of these words with what stands around them
DROPPED = 10
TPM = 60_000
LEAVES_AFTER_S = 0.3
LARGE_BYTES = 24 * 1024 * 1024  # more than the sockets on the way to a vendor take in


@pytest.fixture(scope="module")
def deaf():
    """A vendor that takes connections and reads nothing of them."""
    with RawUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def refusing():
    with RawUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def slow():
    with RawUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(launch, vendor, deaf, refusing, slow):
    made = {
        "model": [{"name": name, "price": PRICE} for name in (MODEL, DEAF, REFUSED, SLOW)],
        "group": [{"name": "all"}],
        "channel": [
            *(channel(f, f, vendor.url, {MODEL: "demo-small"}) for f in ALL),
            channel("deaf", CHAT, deaf.url, {DEAF: DEAF}),
            channel("slow", CHAT, slow.url, {SLOW: SLOW}),
            channel("refusing", CHAT, refusing.url, {REFUSED: REFUSED}),
        ],
    }
    people = [
        owners([f"leaves-{f}" for f in ALL], CREDIT, tpm=TPM),
        owners(["tight"], CREDIT, tpm=3000),
        owners(["early", "fails", "quick", "quicker", "waits"], RICH),
    ]
    return launch(joined(made, *people), {"upstream.commit_after_s": 1, "upstream.heartbeat_s": 1})


@pytest.fixture(scope="module")
def wallets(gateway):
    made = Wallets(gateway)
    yield made
    made.close()


def drop(gateway, family, who, prompt, stream=False, leaves_after_s=LEAVES_AFTER_S):
    """A call whose client leaves."""
    with Connection(gateway.port) as connection:
        headers = credentials(family, secret_of(who))
        body = ask(family, MODEL, prompt, stream)
        connection.request("POST", path_of(family, MODEL, stream), headers, body)
        time.sleep(leaves_after_s)
        connection.reset()


def records_of(gateway, who, number):
    found = wait_until(lambda: of_all(gateway, who, number), 10, step_s=0.2)
    assert found, f"not {number} records of {who}"
    return found


def of_all(gateway, who, number):
    records = gateway.usage(user=who)
    return records if len(records) == number else None


def tokens_left(gateway, who):
    body = ask(CHAT, MODEL)
    answer = exchange(gateway.port, "POST", path_of(CHAT, MODEL), credentials(CHAT, who), body)
    assert answer.status == 200
    return int(answer.headers["x-ratelimit-remaining-tokens"])


@pytest.fixture(scope="module")
def dropped(gateway):
    """What `drop_many` saw of each family, at once: each takes seconds."""
    with ThreadPoolExecutor(len(ALL)) as pool:
        return dict(zip(ALL, pool.map(lambda family: drop_many(gateway, family), ALL), strict=True))


def drop_many(gateway, family):
    """Streamed and plain calls, before the head and, committed, after it: (their records, tokens
    left of the limit, all records of their user)."""
    who = f"leaves-{family}"
    ways = [(bool(number % 2), LEAVES_AFTER_S) for number in range(DROPPED - 1)]
    ways.append((True, 2.5))  # after a heartbeat
    with ThreadPoolExecutor(DROPPED) as pool:
        list(pool.map(lambda way: drop(gateway, family, who, SILENT, *way), ways))
    records = records_of(gateway, who, DROPPED)
    left = tokens_left(gateway, secret_of(who))  # by one call more, which is paid as well
    return records, left, records_of(gateway, who, DROPPED + 1)


@pytest.mark.parametrize("family", ALL)
def test_dropped_calls_are_paid(wallets, dropped, family):
    records, left, paid = dropped[family]
    for record in records:
        assert record["outcome"] == record["error_code"] == "client_gone"
        assert INPUT_TOKENS[0] < record["input_tokens"] < INPUT_TOKENS[1]
        assert (record["output_tokens"], record["usage_source"]) == (0, "estimated")
        assert check_charged(record) > 0
    assert {None, 200} == {record["status"] for record in records}
    wallets.check(f"leaves-{family}", CREDIT, paid)
    assert TPM - left > DROPPED * INPUT_TOKENS[0] - TPM // 60 * 10  # the bucket fills meanwhile


def test_who_leaves_while_money_is_waited_for_has_nothing_sent(gateway, wallets):
    path = gateway.folder / "sluice.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as store:
        store.execute("BEGIN IMMEDIATE")  # no lease can be had for the first call of a user
        drop(gateway, CHAT, "waits", SILENT)
        store.execute("ROLLBACK")
    (record,) = records_of(gateway, "waits", 1)
    assert (record["outcome"], record["attempts"]) == ("client_gone", [])
    check_free(record)
    wallets.check("waits", RICH, [record])


def test_dropped_calls_use_up_the_limit_of_tokens(gateway):
    for _ in range(3):
        drop(gateway, CHAT, "tight", SILENT)
    body, headers = ask(CHAT, MODEL, WORDS), credentials(CHAT, secret_of("tight"))
    answer = exchange(gateway.port, "POST", path_of(CHAT, MODEL), headers, body)
    assert answer.status == 429 and b"tokens per minute. Try again in" in answer.body


def test_what_the_vendor_has_not_got_whole_is_free(gateway, wallets):
    body = ask(CHAT, DEAF, "word " * (LARGE_BYTES // 5))
    with Connection(gateway.port) as connection:
        connection.request("POST", path_of(CHAT, DEAF), credentials(CHAT, secret_of("early")), body)
        time.sleep(1)
        connection.reset()
    (record,) = records_of(gateway, "early", 1)
    assert (record["outcome"], record["channel"]) == ("client_gone", "deaf")
    check_free(record)
    wallets.check("early", RICH, [record])


@pytest.mark.parametrize("reports", [True, False])
def test_who_leaves_with_the_last_word_pays_for_what_was_not_seen(gateway, wallets, slow, reports):
    """Chat completions report usage, and reasoning, in an event behind the end of the text."""
    who, given = ("quick" if reports else "quicker"), 9
    text, finish, usage, done = chat_stream([thought(CHAT, given, 50, 5000)])
    with Connection(gateway.port) as connection:
        headers = credentials(CHAT, secret_of(who))
        connection.request("POST", path_of(CHAT, SLOW), headers, ask(CHAT, SLOW, stream=True))
        peer = slow.accept()
        peer.send(STREAM_HEAD)
        peer.chunk(text)
        peer.chunk(finish)
        answer = connection.read_head()
        while b'"stop"' not in answer.body:
            answer.pieces.append(connection.read_chunk())
        connection.reset()
    time.sleep(0.1)
    if reports:
        peer.chunk(usage + done)
    (record,) = records_of(gateway, who, 1)
    peer.close()
    counts = (record["input_tokens"], record["output_tokens"], record["reasoning_tokens"])
    assert record["outcome"] == "client_gone"
    if reports:
        assert (counts, record["usage_source"]) == ((given, 50, 5000), "reported")
    else:  # it is not waited for
        assert (counts[1:], record["usage_source"]) == ((50, 0), "estimated")
        assert record["duration_ms"] < 5000
    wallets.check(who, RICH, [record])


def test_what_the_vendor_has_refused_is_free(gateway, wallets, refusing):
    """The client leaves while the refusal's body is still to come."""
    with Connection(gateway.port) as connection:
        headers = credentials(CHAT, secret_of("fails"))
        connection.request("POST", path_of(CHAT, REFUSED), headers, ask(CHAT, REFUSED))
        peer = refusing.accept()
        peer.send(b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n{")
        time.sleep(0.3)
        connection.reset()
    (record,) = records_of(gateway, "fails", 1)
    peer.close()
    check_free(record)
    wallets.check("fails", RICH, [record])

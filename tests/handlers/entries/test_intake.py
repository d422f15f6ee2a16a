"""How bodies are taken in, and when a refusal is answered: on real sockets, with tiny handlers."""

import asyncio
import gzip
import random
import tracemalloc
import zlib
from ipaddress import ip_network
from unittest.mock import patch

import pytest

from adapters.faults import Condition, Fault
from handlers.entries.intake import BodyHandler
from handlers.entries.unpack import STATE_BYTES, PackedBody
from handlers.relay.limits.body_memory import BodyMemory
from tests.support.client import encode_head
from tests.support.served import CHUNKED, VERSION, acting, chunks, post, serving, turns, until

LIMIT = 2000
LOOPBACK = [ip_network("127.0.0.0/8")]
EXPECT = {"Expect": "100-continue"}


def refuse(handler):
    raise Fault(Condition.KEY_DISABLED)


async def refuse_later(handler):
    await asyncio.sleep(0.01)
    refuse(handler)


def check_size(handler):
    handler.check_size()


def head(size, headers=None):
    return encode_head("POST", "/acted", {"Content-Length": str(size), **(headers or {})})


def echoing(**options):
    """A handler class that sends the body back."""
    return acting(lambda handler, body: handler.respond(body), **options)


LOOKED_INTO = {"LOOKED_INTO": frozenset({Condition.KEY_DISABLED})}
BOTH_CHECKS = pytest.mark.parametrize("check", [refuse, refuse_later])


# ---- bodies within the limit ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, LIMIT - 1, LIMIT])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_up_to_the_limit_is_handed_over(size, chunked):
    async with serving({"/acted": echoing()}, max_body_bytes=LIMIT) as served:
        body = bytes(range(256)) * 8
        body = body[:size]
        peer = await served.peer()
        for _ in range(2):
            if chunked:
                half = size // 2
                pieces = [piece for piece in (body[:half], body[half:]) if piece]
                await peer.send(post(chunks(*pieces), CHUNKED, "/acted"))
            else:
                await peer.send(post(body, {}, "/acted"))
            answer = await peer.answer()
            assert (answer.status, answer.body) == (200, body)
        assert served.waiting_bodies == 0


async def test_tiny_pieces_take_no_more_memory_than_their_bytes():
    handler = echoing()
    async with serving({"/acted": handler}) as served:
        chunk, count = b"2\r\nab\r\n", 100_000
        peer = await served.peer(encode_head("POST", "/acted", CHUNKED))
        tracemalloc.start()
        try:
            await peer.send(chunk * count)
            await until(lambda: handler.seen[0]._size == 2 * count)
            now, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert now < 4 * 2 * count
        await peer.send(b"800\r\n" + b"x" * 2048 + b"\r\n" + chunk * 2 + b"0\r\n\r\n")
        assert (await peer.answer()).body == b"ab" * count + b"x" * 2048 + b"abab"


async def test_a_request_without_a_body_waits_for_none():
    handler = echoing()
    async with serving({"/acted": handler}) as served:
        answer = await served.ask("GET", "/acted")
        assert (answer.status, answer.body) == (200, b"")
        assert handler.seen[0].events == ["complete"]


async def test_a_slow_check_of_the_head_comes_before_the_body():
    async def wait(handler):
        await asyncio.sleep(0.01)
        handler.events.append("checked")

    handler = echoing(head_act=wait)
    async with serving({"/acted": handler}) as served:
        assert (await served.ask("POST", "/acted", None, b"body")).body == b"body"
        assert handler.seen[0].events == ["checked", "complete"]


# ---- refusals wait for the body ------------------------------------------------------------------


@BOTH_CHECKS
async def test_a_refusal_waits_until_the_body_has_passed_by(check):
    handler = acting(head_act=check)
    async with serving({"/acted": handler}) as served:
        peer = await served.peer(head(6))
        for piece in (b"bo", b"dy"):
            assert await peer.is_silent()
            await peer.send(piece)
        assert await peer.is_silent()
        await peer.send(b"..")
        answer = await peer.answer()
        assert (answer.status, answer.json["error"]["code"]) == (401, "api_key_disabled")
        assert "connection" not in answer.headers
        assert (await peer.ask("GET", "/livez")).status == 200
        assert handler.seen[0].events == ["refused"] and served.waiting_bodies == 0


@BOTH_CHECKS
async def test_a_refusal_without_a_body_comes_at_once(check):
    handler = acting(head_act=check)
    async with serving({"/acted": handler}) as served:
        peer = await served.peer()
        for method in ("GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"):
            answer = await peer.ask(method, "/acted")
            assert answer.status == 401 and "connection" not in answer.headers
        assert {tuple(one.events) for one in handler.seen} == {("refused",)}


@pytest.mark.parametrize("headers", [{}, VERSION])
async def test_a_refusal_is_in_the_callers_dialect(headers):
    async with serving({"/acted": acting(head_act=refuse)}) as served:
        error = (await served.ask("POST", "/acted", headers, b"{}")).json["error"]
        assert error["type"] == ("authentication_error" if headers else "invalid_request_error")


async def test_nothing_is_kept_of_the_body_of_a_refused_request():
    handler = acting(head_act=refuse)
    async with serving({"/acted": handler}) as served:
        await served.ask("POST", "/acted", None, b"body")
        assert handler.seen[0].kept == b""


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        ([b"abcd"], b"abcd"),
        ([b"ab", b"cdef"], b"abcdef"),
        ([b"abcd", b"efgh", b"i"], b""),
        ([b"abcdefghi"], b""),
    ],
)
@BOTH_CHECKS
async def test_a_small_body_of_a_refused_request_may_be_kept(check, pieces, kept):
    handler = acting(head_act=check, **LOOKED_INTO, KEEP_OF_REFUSED_BYTES=8)
    async with serving({"/acted": handler}) as served:
        await served.ask("POST", "/acted", CHUNKED, chunks(*pieces))
        assert handler.seen[0].kept == kept


async def test_the_body_of_who_wants_none_is_not_kept():
    """Anybody may send one with GET /, without a key."""
    handler = echoing(READS_BODY=False)
    async with serving({"/acted": handler}) as served:
        for path in ("/acted", "/livez", "/"):
            peer = await served.peer()
            answer = await peer.ask("GET", path, None, bytes(1_000_000))
            assert answer.status == 200 and "connection" not in answer.headers
        assert handler.seen[0].events == ["complete"]


# ---- refusals that do not wait -------------------------------------------------------------------


@BOTH_CHECKS
async def test_who_expects_to_be_told_is_refused_at_once(check):
    handler = acting(head_act=check)
    async with serving({"/acted": handler}) as served:
        peer = await served.peer(head(6, EXPECT))
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        assert await peer.rest() == b""
        assert handler.seen[0].events == ["refused", "closed"]


async def test_a_body_announced_too_large_is_refused_at_once():
    handler = acting(head_act=check_size)
    async with serving({"/acted": handler}, max_body_bytes=LIMIT) as served:
        peer = await served.peer(head(LIMIT + 1))
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert answer.json["error"]["message"] == "The body is larger than 2000 bytes."
        assert handler.seen[0].events == ["refused", "closed"] and served.waiting_bodies == 0
        await peer.send(bytes(LIMIT + 1))  # without a reset
        assert await peer.rest() == b""


async def test_a_slow_refusal_finds_more_of_the_body_than_is_read_ahead():
    async def check(handler):
        await asyncio.sleep(0.02)
        handler.check_size()

    async with serving({"/acted": acting(head_act=check)}, max_body_bytes=LIMIT) as served:
        peer = await served.peer(head(900_000))
        sending = asyncio.create_task(peer.send(bytes(900_000)))
        assert (await peer.answer()).status == 413
        await sending
        assert await peer.rest() == b""


async def test_the_limit_is_told_in_mib_when_it_is_round():
    async with serving({"/acted": acting(head_act=check_size)}, max_body_bytes=3 << 20) as served:
        peer = await served.peer(head((3 << 20) + 1))
        assert (await peer.answer()).json["error"]["message"] == "The body is larger than 3 MiB."


async def test_another_refusal_of_a_body_announced_too_large_comes_at_once():
    async with serving({"/acted": acting(head_act=refuse)}, max_body_bytes=LIMIT) as served:
        peer = await served.peer(head(LIMIT + 1))
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")


async def test_a_body_without_check_of_its_announcement_is_refused_when_it_is_too_large():
    handler = acting()
    async with serving({"/acted": handler}, max_body_bytes=LIMIT) as served:
        peer = await served.peer(head(LIMIT + 1), bytes(LIMIT))
        assert await peer.is_silent()
        await peer.send(b"x")
        assert (await peer.answer()).status == 413
        assert handler.seen[0].events == ["refused", "closed"]


@pytest.mark.parametrize("check", [None, check_size])
async def test_chunks_over_the_limit(check):
    handler = acting(head_act=check)
    async with serving({"/acted": handler}, max_body_bytes=LIMIT) as served:
        peer = await served.peer(encode_head("POST", "/acted", CHUNKED))
        for _ in range(LIMIT // 100):
            await peer.send(b"64\r\n" + bytes(100) + b"\r\n")
        assert await peer.is_silent()
        await peer.send(b"1\r\nx\r\n")
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert handler.seen[0].events == ["refused", "closed"]
        await peer.send(b"64\r\n" + bytes(100) + b"\r\n0\r\n\r\n")
        assert await peer.rest() == b"" and served.waiting_bodies == 0


async def test_chunks_over_the_limit_in_one_segment_with_what_follows():
    handler = acting()
    async with serving({"/acted": handler}, max_body_bytes=LIMIT) as served:
        whole = post(chunks(bytes(LIMIT + 1), bytes(5000)), CHUNKED, "/acted")
        peer = await served.peer(whole + post(b"next", {}, "/acted"))
        assert (await peer.answer()).status == 413
        assert await peer.rest() == b"" and len(handler.seen) == 1


@BOTH_CHECKS
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_refused_request_is_not_waited_for_beyond_the_limit(check, chunked):
    handler = acting(head_act=check)
    async with serving({"/acted": handler}, max_body_bytes=LIMIT) as served:
        peer = await served.peer(encode_head("POST", "/acted", CHUNKED), b"7d0\r\n" + bytes(LIMIT))
        assert await peer.is_silent()
        await peer.send(b"\r\n1\r\nx\r\n")
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        assert handler.seen[0].events == ["refused", "closed"]


# ---- behind a proxy ------------------------------------------------------------------------------

PROXY_LIMIT = 100_000


@pytest.fixture
def proxied(monkeypatch):
    """proxied(…) -> a server that trusts its peer; it discards less than 64 MiB, to be fast."""
    monkeypatch.setattr("handlers.entries.intake.OVERSIZED_PROXY_BYTES", PROXY_LIMIT)

    def make(**options):
        return serving({"/acted": acting(**options)}, LOOPBACK, max_body_bytes=LIMIT)

    return make


@pytest.mark.parametrize("check", [None, check_size])
async def test_a_proxy_may_send_all_of_a_body_that_is_too_large(proxied, check):
    async with proxied(head_act=check) as served:
        peer = await served.peer(head(PROXY_LIMIT), bytes(PROXY_LIMIT - 1))
        assert await peer.is_silent()
        await peer.send(b"x")
        answer = await peer.answer()
        assert answer.status == 413 and "connection" not in answer.headers
        assert (await peer.ask("GET", "/livez")).status == 200


async def test_a_proxy_may_send_all_chunks_of_a_body_that_is_too_large(proxied):
    async with proxied() as served:
        peer = await served.peer()
        body = chunks(*[bytes(1000)] * (PROXY_LIMIT // 1000))
        await peer.send(post(body[:-5], CHUNKED, "/acted"))
        assert await peer.is_silent()
        await peer.send(body[-5:])
        answer = await peer.answer()
        assert answer.status == 413 and "connection" not in answer.headers
        assert (await peer.ask("GET", "/livez")).status == 200


async def test_a_body_too_large_even_for_a_proxy(proxied):
    async with proxied(head_act=check_size) as served:
        peer = await served.peer(head(PROXY_LIMIT + 1))
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        peer = await served.peer(encode_head("POST", "/acted", CHUNKED))
        body = chunks(*[bytes(1000)] * (PROXY_LIMIT // 1000))
        await peer.send(body[:-5])
        assert await peer.is_silent()
        await peer.send(b"1\r\nx\r\n")
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")


@BOTH_CHECKS
async def test_any_refusal_waits_for_a_body_of_a_proxy(proxied, check):
    async with proxied(head_act=check) as served:
        peer = await served.peer(head(PROXY_LIMIT), bytes(PROXY_LIMIT - 1))
        assert await peer.is_silent()
        await peer.send(b"x")
        answer = await peer.answer()
        assert answer.status == 401 and "connection" not in answer.headers


async def test_an_expecting_proxy_is_told_at_once(proxied):
    async with proxied(head_act=check_size) as served:
        peer = await served.peer(head(LIMIT + 1, EXPECT))
        assert (await peer.answer()).status == 413


# ---- bodies that do not come in time -------------------------------------------------------------


async def test_a_body_that_does_not_come_in_time():
    handler = acting()
    async with serving({"/acted": handler}, body_timeout_s=5) as served:
        peer = await served.peer(head(6), b"bod")
        await until(lambda: served.waiting_bodies)
        await served.pass_s(5)
        assert await peer.is_silent()
        await served.pass_s(1)
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert answer.json["error"]["code"] == "request_timeout"
        assert handler.seen[0].events == ["refused", "closed"]
        await peer.send(b"y..")
        assert await peer.rest() == b"" and served.waiting_bodies == 0


async def test_every_byte_of_a_body_has_the_same_deadline():
    async with serving({"/acted": echoing()}, body_timeout_s=5) as served:
        peer = await served.peer(head(60))
        await until(lambda: served.waiting_bodies)
        for _ in range(6):
            await peer.send(b"x")
            await served.pass_s(1)
        assert (await peer.answer()).status == 408


async def test_a_refused_body_that_does_not_come_in_time_gets_its_refusal():
    handler = acting(head_act=refuse)
    async with serving({"/acted": handler}, body_timeout_s=5) as served:
        peer = await served.peer(head(6), b"bod")
        await until(lambda: served.waiting_bodies)
        await served.pass_s(6)
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")


async def test_a_body_in_time_has_no_deadline_left():
    async def act(handler, body):
        await asyncio.sleep(0.02)
        handler.respond(body)

    async with serving({"/acted": acting(act)}, body_timeout_s=5) as served:
        peer = await served.peer(post(b"body", {}, "/acted"))
        await turns()
        await served.pass_s(60)
        assert (await peer.answer()).body == b"body"


async def test_slow_bodies_by_the_hundred():
    async with serving({"/acted": echoing()}, body_timeout_s=5) as served:
        peers = [await served.peer(head(6), b"b") for _ in range(200)]
        await until(lambda: served.waiting_bodies == 200)
        assert (await served.ask("GET", "/livez")).status == 200
        await served.pass_s(6)
        for peer in peers:
            assert (await peer.answer()).status == 408
        await served.pass_s(3)
        await until(lambda: not served.server.connections)


async def test_a_deadline_is_for_its_own_request_only():
    handler = echoing()
    async with serving({"/acted": handler}, body_timeout_s=5) as served:
        first, second = await served.peer(head(4)), await served.peer(head(4))
        await until(lambda: served.waiting_bodies == 2)
        await served.pass_s(3)
        third = await served.peer(head(4))
        await until(lambda: served.waiting_bodies == 3)
        await first.send(b"body")
        assert (await first.answer()).status == 200
        await served.pass_s(3)
        assert (await second.answer()).status == 408
        await third.send(b"body")
        assert (await third.answer()).status == 200


# ---- packed bodies -------------------------------------------------------------------------------

PACKED = {"Content-Encoding": "gzip"}
NOISE = random.Random(4).randbytes(200_000)


def unpack(handler):
    handler.check_size()
    handler.unpack(handler.request.headers.get("content-encoding", "identity"))


def unpacking(**options):
    """A handler class that sends the unpacked body back."""
    return echoing(head_act=unpack, **options)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP", "identity", "Identity"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_packed_body_is_handed_over_unpacked(coding, chunked):
    async with serving({"/acted": unpacking()}) as served:
        peer = await served.peer()
        for body in (b"{}", b"x" * 1_000_000, NOISE):
            data = gzip.compress(body) if "gzip" in coding.lower() else body
            headers = {"Content-Encoding": coding}
            if chunked:
                half = len(data) // 2
                data = chunks(data[:half], data[half:])
                headers |= CHUNKED
            await peer.send(post(data, headers, "/acted"))
            answer = await peer.answer()
            assert (answer.status, answer.body) == (200, body)
        assert served.waiting_bodies == 0


async def test_a_packed_body_in_many_small_pieces():
    async with serving({"/acted": unpacking()}) as served:
        data = gzip.compress(b"some text " * 50)
        peer = await served.peer(head(len(data), PACKED), *[bytes([one]) for one in data])
        assert (await peer.answer()).body == b"some text " * 50


async def test_packed_and_plain_bodies_take_turns_on_a_connection():
    async with serving({"/acted": unpacking()}) as served:
        packed = gzip.compress(bytes(500_000))
        both = post(packed, PACKED, "/acted") + post(b"plain", {}, "/acted")
        peer = await served.peer(both * 3)
        for _ in range(3):
            assert (await peer.answer()).body == bytes(500_000)
            assert (await peer.answer()).body == b"plain"


async def test_a_packed_body_may_be_waited_upon():
    async def act(handler, body):
        await asyncio.sleep(0.01)
        handler.respond(body)

    async with serving({"/acted": acting(act, unpack)}) as served:
        answer = await served.ask("POST", "/acted", PACKED, gzip.compress(NOISE))
        assert answer.body == NOISE


OTHERS = ["br", "zstd", "deflate", "compress", "gzip, gzip", "gzip,identity", "br, gzip", "made-up"]


@pytest.mark.parametrize("coding", OTHERS)
async def test_other_codings_are_refused_when_the_body_has_passed(coding):
    async with serving({"/acted": unpacking()}) as served:
        peer = await served.peer(head(6, {"Content-Encoding": coding}), b"body")
        assert await peer.is_silent()
        await peer.send(b"..")
        answer = await peer.answer()
        assert answer.status == 415 and "connection" not in answer.headers
        assert answer.json["error"]["code"] == "unsupported_content_encoding"


async def test_two_codings_in_two_lines_are_refused():
    async with serving({"/acted": unpacking()}) as served:
        data = gzip.compress(b"{}")
        lines = head(len(data), PACKED).replace(b"gzip\r\n", b"gzip\r\nContent-Encoding: gzip\r\n")
        peer = await served.peer(lines + data)
        assert (await peer.answer()).status == 415


DAMAGED = {
    "plain": b"x" * 600,
    "cut": gzip.compress(NOISE)[:-1],
    "empty": b"",
    "a byte behind": gzip.compress(b"{}") + b"x",
    "two": gzip.compress(b"{}") * 2,
    "wrong sum": gzip.compress(NOISE)[:-8] + bytes(8),
}


@pytest.mark.parametrize("name", DAMAGED)
async def test_a_body_that_does_not_unpack(name):
    data = DAMAGED[name]
    handler = unpacking()
    async with serving({"/acted": handler}) as served:
        half = len(data) // 2
        peer = await served.peer(head(len(data), PACKED), *[p for p in (data[:half],) if p])
        assert data == b"" or await peer.is_silent()
        await peer.send(data[half:])
        answer = await peer.answer()
        assert answer.status == 415 and "connection" not in answer.headers
        assert answer.json["error"]["code"] == "unsupported_content_encoding"
        assert (await peer.ask("GET", "/livez")).status == 200
        assert handler.seen[0].events == ["refused"] and served.waiting_bodies == 0


async def test_the_limit_holds_for_what_a_body_unpacks_to():
    async with serving({"/acted": unpacking()}, max_body_bytes=LIMIT) as served:
        peer = await served.peer(post(gzip.compress(bytes(LIMIT)), PACKED, "/acted"))
        assert (await peer.answer()).body == bytes(LIMIT)
        await peer.send(post(gzip.compress(bytes(LIMIT + 1)), PACKED, "/acted"))
        answer = await peer.answer()
        assert answer.status == 413
        assert answer.json["error"]["message"] == "The body is larger than 2000 bytes."


@pytest.mark.parametrize("chunked", [False, True])
async def test_the_limit_holds_for_a_packed_body(chunked):
    data = gzip.compress(NOISE[:LIMIT])  # noise gets longer by packing
    async with serving({"/acted": unpacking()}, max_body_bytes=LIMIT) as served:
        sent = (
            post(chunks(data), PACKED | CHUNKED, "/acted") if chunked else head(len(data), PACKED)
        )
        peer = await served.peer(sent)
        assert (await peer.answer()).status == 413


async def test_a_bomb_is_refused_before_its_end():
    handler = unpacking()
    async with serving({"/acted": handler}, max_body_bytes=1 << 20) as served:
        bomb = gzip.compress(bytes(64 << 20))
        peer = await served.peer(head(len(bomb), PACKED), bomb[:10_000])
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert answer.json["error"]["message"] == "The body is larger than 1 MiB."
        assert handler.seen[0].events == ["refused", "closed"] and served.waiting_bodies == 0
        await peer.send(bomb[10_000:])
        assert await peer.rest() == b""


@pytest.mark.parametrize("checked_later", [False, True])
async def test_a_whole_bomb_in_one_segment(checked_later):
    async def later(handler):
        await asyncio.sleep(0.01)
        unpack(handler)

    handler = echoing(head_act=later if checked_later else unpack)
    async with serving({"/acted": handler}, max_body_bytes=1 << 20) as served:
        peer = await served.peer(post(gzip.compress(bytes(64 << 20)), PACKED, "/acted"))
        assert (await peer.answer()).status == 413
        assert handler.seen[0].events[0] == "refused"


async def test_a_bomb_of_a_proxy_may_come_whole(proxied):
    async with proxied(head_act=unpack) as served:
        peer = await served.peer(post(gzip.compress(bytes(1 << 20)), PACKED, "/acted"))
        answer = await peer.answer()
        assert answer.status == 413 and "connection" not in answer.headers
        assert (await peer.ask("GET", "/livez")).status == 200


async def test_others_are_served_while_a_large_body_is_unpacked():
    """Its steps are counted, not timed: between two of them another request is answered."""
    steps, between = [], []
    real = PackedBody.step

    def counted(packed):
        steps.append(None)
        return real(packed)

    def probe(handler, body):
        between.append(len(steps))
        handler.respond(b"{}")

    routes = {"/acted": unpacking(), "/probe": acting(probe)}
    async with serving(routes) as served:
        with patch.object(PackedBody, "step", counted):
            other = await served.peer()
            peer = await served.peer(post(gzip.compress(bytes(24 << 20)), PACKED, "/acted"))
            asked = 0
            while len(steps) < 240:
                asked += 1
                await other.ask("GET", "/probe")
            assert len((await peer.answer()).body) == 24 << 20
        assert len(steps) > 320 and len(set(between)) == asked > 5


async def test_a_client_that_leaves_while_its_body_is_unpacked():
    steps = []
    real = PackedBody.step

    def slow(packed):
        steps.append(None)
        real(packed)
        return True

    handler = unpacking()
    async with serving({"/acted": handler}) as served:
        with patch.object(PackedBody, "step", slow):
            peer = await served.peer(post(gzip.compress(b"{}"), PACKED, "/acted"))
            await until(lambda: len(steps) > 3)
            peer.leave()
            await until(lambda: not served.server.connections)
            await turns()
            seen = len(steps)
            await turns()
            assert len(steps) == seen
        assert handler.seen[0].events == ["closed", "left"]


async def test_a_packed_body_that_does_not_come_in_time():
    handler = unpacking()
    data = gzip.compress(NOISE)
    async with serving({"/acted": handler}, body_timeout_s=5) as served:
        peer = await served.peer(head(len(data), PACKED), data[:1000])
        await until(lambda: served.waiting_bodies)
        await served.pass_s(6)
        assert (await peer.answer()).status == 408
        assert handler.seen[0].events == ["refused", "closed"]


@pytest.mark.parametrize(("size", "kept"), [(100, b"a" * 100), (101, b"")])
async def test_a_small_packed_body_of_a_refused_request_may_be_kept(size, kept):
    handler = acting(head_act=refuse, **LOOKED_INTO, KEEP_OF_REFUSED_BYTES=100)
    async with serving({"/acted": handler}) as served:
        answer = await served.ask("POST", "/acted", PACKED, gzip.compress(b"a" * size))
        assert (answer.status, handler.seen[0].kept) == (401, kept)


# ---- the memory for bodies -----------------------------------------------------------------------


def counting(memory, **options):
    """A handler class that sends the body back and then releases what it counts."""

    def act(handler, body):
        handler.held = memory.held_bytes
        handler._forget_body()
        handler.respond(body)

    def hold_body(handler):
        return memory.hold(handler._evict, "alice", "key")

    return acting(act, hold_body=hold_body, **options)


@pytest.mark.parametrize(
    ("request_head", "pieces", "held"),
    [
        (head(6), [b"abcdef"], 0),
        (head(6), [b"ab", b"cd", b"ef"], 6),
        (encode_head("POST", "/acted", CHUNKED), [b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"], 6),
    ],
    ids=["whole at once", "pieces", "chunked"],
)
async def test_a_body_counts_unless_it_is_whole_at_once(request_head, pieces, held):
    memory = BodyMemory(1000)
    handler = counting(memory)
    async with serving({"/acted": handler}) as served:
        peer = await served.peer(request_head, *pieces)
        assert (await peer.answer()).body == b"abcdef"
        assert (handler.seen[0].held, memory.held_bytes) == (held, 0)


async def test_packed_and_unpacked_bytes_count():
    memory = BodyMemory(1 << 20)
    data = gzip.compress(bytes(100_000))
    handler = counting(memory, head_act=lambda handler: handler.unpack("gzip"))
    async with serving({"/acted": handler}) as served:
        peer = await served.peer(head(len(data), PACKED), data[:-1])
        await until(lambda: memory.held_bytes >= 100_000 + STATE_BYTES)
        await peer.send(data[-1:])
        assert (await peer.answer()).body == bytes(100_000)
        assert (handler.seen[0].held, memory.held_bytes) == (100_000, 0)


async def test_small_pieces_unpacked_take_no_more_than_they_have():
    body, machine = PackedBody(LIMIT), zlib.compressobj(wbits=31)
    for _ in range(LIMIT):
        body.feed(machine.compress(b"a") + machine.flush(zlib.Z_SYNC_FLUSH))
        assert body.step() is False
    assert len(body._parts) == 2
    body.feed(machine.flush())
    assert (body.step(), body.take()) == (False, b"a" * LIMIT)


@pytest.mark.parametrize("leaves", ["client", "time", "memory"])
async def test_an_unfinished_body_counts_no_more_when_it_ends(leaves):
    memory = BodyMemory(1000)
    handler = counting(memory)
    async with serving({"/acted": handler}, body_timeout_s=5) as served:
        peer = await served.peer(head(600), bytes(500))
        await until(lambda: memory.held_bytes == 500)
        if leaves == "client":
            peer.leave()
        elif leaves == "time":
            await served.pass_s(6)
            assert (await peer.answer()).status == 408
        else:
            other = await served.peer(head(600), bytes(500))
            await other.send(bytes(99))
            answer = await other.answer()
            assert (answer.status, answer.headers["retry-after"]) == (429, "1")
            assert answer.headers["connection"] == "close"
            peer.leave()
        await until(lambda: not memory.users)
        assert memory.held_bytes == 0


async def test_a_proxy_may_send_all_of_a_body_without_memory_for_it():
    memory = BodyMemory(1000)
    handler = counting(memory)
    async with serving({"/acted": handler}, LOOPBACK) as served:
        holder = await served.peer(head(600), bytes(500))
        await until(lambda: memory.held_bytes == 500)
        peer = await served.peer(head(600), bytes(500), bytes(99))
        assert await peer.is_silent()
        await peer.send(b"x")
        answer = await peer.answer()
        assert answer.status == 429 and "connection" not in answer.headers
        holder.leave()


async def test_what_is_kept_of_refused_bodies_counts():
    memory = BodyMemory(160)
    handler = counting(memory, head_act=refuse, **LOOKED_INTO, KEEP_OF_REFUSED_BYTES=100)
    async with serving({"/acted": handler}) as served:
        first = await served.peer(head(80), bytes(50))
        await until(lambda: memory.held_bytes == 50)
        second = await served.peer(head(80), bytes(50), bytes(20))
        assert memory.held_bytes == 50
        for peer, missing in ((second, 10), (first, 30)):
            await peer.send(bytes(missing))
            assert (await peer.answer()).status == 401
        assert [len(one.kept) for one in handler.seen] == [80, 0]
        assert memory.held_bytes == 0


async def test_nothing_is_kept_of_a_refused_body_that_nobody_looks_into():
    handler = acting(head_act=refuse, KEEP_OF_REFUSED_BYTES=100)
    async with serving({"/acted": handler}) as served:
        await served.ask("POST", "/acted", None, b"abc")
        assert handler.seen[0].kept == b""


# ---- the rest ------------------------------------------------------------------------------------


async def test_a_closed_connection_gets_no_handler_to_work():
    """Its client left between the head and the handler's turn."""
    checked = []
    handler = acting(head_act=checked.append)
    async with serving({"/acted": handler}) as served:
        peer = await served.peer()
        await until(lambda: served.server._connections)
        [connection] = served.server._connections
        connection.close()
        connection.data_received(post(b"body", {}, "/acted"))
        await until(lambda: not served.server.connections)
        await turns()
        assert len(handler.seen) == 1 and not checked
        assert "complete" not in handler.seen[0].events
        peer.leave()


async def test_a_handler_must_say_what_it_does():
    async with serving({"/acted": BodyHandler}) as served:
        answer = await served.ask("POST", "/acted", None, b"body")
        assert (answer.status, len(served.errors.take())) == (500, 1)

    class Idle(BodyHandler):
        def check_head(self):
            return None

    async with serving({"/acted": Idle}) as served:
        answer = await served.ask("POST", "/acted", None, b"body")
        assert (answer.status, len(served.errors.take())) == (500, 1)
